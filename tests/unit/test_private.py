"""Tests touch what is private only where a comment says why."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
PUBLIC = {"_asdict", "_exit", "_fields", "_make", "_replace"}
"""Names of the standard library that only look private."""
PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)\s*\.\s*_[^_\W]|attr\([^\"']*[\"'][\w.]*\b_[^_\W]")
"""What a file has that uses something private: most have nothing to be parsed for."""
COMMENT = re.compile(r"  # (?!fmt:|noqa|type:)")
"""A comment at the end of a line that is for people."""


def uses(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Each private attribute of something else than ``self``, with the statement that uses or replaces it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for part in _own_parts(node):
                if isinstance(part, ast.Attribute) and part.attr.startswith("_") and not _is_own(part):
                    yield part.attr, node

            # As in `monkeypatch.setattr(module, "_name", …)` and `setattr("arkqueue.module._name", …)`.
            for call in (part for part in _own_parts(node) if isinstance(part, ast.Call)):
                if isinstance(call.func, ast.Attribute | ast.Name) and _name_of(call.func) in ("setattr", "getattr"):
                    for word in call.args[:2]:
                        if isinstance(word, ast.Constant) and isinstance(word.value, str):
                            name = word.value.rpartition(".")[2]
                            if name.startswith("_") and not name.startswith("__"):
                                yield name, node


def _name_of(function: ast.Attribute | ast.Name) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id


def _own_parts(statement: ast.stmt) -> Iterator[ast.AST]:
    """What belongs to a statement, without the statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            yield from _expressions(child)


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            yield from _expressions(child)


def _is_own(attribute: ast.Attribute) -> bool:
    of_self = isinstance(attribute.value, ast.Name) and attribute.value.id in ("self", "cls")
    return of_self or attribute.attr in PUBLIC or attribute.attr.startswith("__")


def unexplained(text: str) -> dict[str, int]:
    """Private attributes and the line of their first use, where no use has a comment beside it or right above it."""
    lines = text.splitlines()
    first: dict[str, int] = {}
    explained: set[str] = set()
    for name, statement in uses(ast.parse(text)):
        first[name] = min(first.get(name, statement.lineno), statement.lineno)
        header = (
            statement.body[0].lineno - 1 if isinstance(statement, ast.With | ast.For | ast.While | ast.If) else None
        )
        beside = lines[statement.lineno - 1 : header or statement.end_lineno]
        if lines[statement.lineno - 2].lstrip().startswith("#") or any(map(COMMENT.search, beside)):
            explained.add(name)
    return {name: line for name, line in first.items() if name not in explained}


def test_each_use_of_something_private_says_why() -> None:
    found = {
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path in TESTS.rglob("*.py")
        if PRIVATE.search(text := path.read_text())
        for name, line in unexplained(text).items()
    }
    assert not found, "say in a comment why the test needs it, or find a way without it"


def test_a_comment_above_or_beside_explains_an_attribute_in_its_file() -> None:
    assert unexplained("x = 1\ny = x._hidden\n") == {"_hidden": 2}
    assert unexplained("x = 1\nif x:\n    print(x._hidden.a)\n") == {"_hidden": 3}
    assert unexplained("x = 1\n# nobody else tells\ny = x._hidden\nz = x._hidden\n") == {}
    assert unexplained("x = 1\ny = x._hidden  # nobody else tells\n") == {}
    assert unexplained("x = 1\ny = x._hidden  # type: ignore\n") == {"_hidden": 2}
    assert unexplained("patch.setattr(x, '_hidden', 1)\n") == {"_hidden": 1}
    assert unexplained("patch.setattr('a.b._hidden', 1)\n") == {"_hidden": 1}
    assert unexplained("patch.setattr(x, '_hidden', 1)  # nobody else tells\n") == {}
    assert unexplained("x = self._own, x._make, x.__class__\n") == {}
