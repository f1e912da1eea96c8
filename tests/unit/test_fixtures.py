"""Each fixture stands once: tests that need the same thing share the fixture that makes it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]


def fixtures(text: str) -> Iterator[tuple[str, int]]:
    """The code of each fixture of a file, with the definitions that it uses, and the fixture's line. Two
    fixtures with the same code make the same thing.
    """
    tree = ast.parse(text)
    own = dict(_definitions(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(each) for each in node.decorator_list):
            node.body = [each for each in node.body if not _is_text(each)] or node.body
            # A name like TASKS may have another definition in another file.
            used = sorted(
                {
                    each.id
                    for each in ast.walk(node)
                    if isinstance(each, ast.Name) and each.id in own.keys() - {node.name}
                }
            )
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
            yield "\n".join(map(ast.unparse, [node, *(own[name] for name in used)])), node.lineno


def _definitions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_each_fixture_stands_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in TESTS.rglob("*.py"):
        if "fixture" in (text := path.read_text()):
            for made_by, line in fixtures(text):
                places[made_by].append(f"{path.relative_to(TESTS)}:{line}")
    repeated = {made_by: where for made_by, where in places.items() if len(where) > 1}
    assert not repeated, "share one: a fixture of a conftest, or one that is imported and stands in `__all__`"


def test_what_makes_fixtures_the_same() -> None:
    one = '@pytest.fixture\ndef a(b: int) -> int:\n    """This."""\n    return b + ONE\n'
    other = '@pytest.fixture\ndef a(b: float) -> float:\n    """That."""\n    return b + ONE\n'

    def key(text: str) -> str:
        ((made_by, _),) = fixtures(text)
        return made_by

    assert key(one) == key(other)
    assert key("ONE = 1\n" + one) == key("ONE = 1\n" + other)
    assert key("ONE = 1\n" + one) != key("ONE = 2\n" + one)
    assert key(one) != key(one.replace("@pytest.fixture", "@pytest.fixture(scope='module')"))
