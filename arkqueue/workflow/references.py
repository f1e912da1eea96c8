"""The references of a JSON Schema (``$ref``): all of them stay in its file, lead to a schema, and
do not go in a circle. Pure.

A reference that leads nowhere, or in a circle, is a fault of the committer who wrote it. Without this
check, the fault would show only when a payload comes, and would be reported to its sender.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from arkqueue.model import Fault, SourceFile
from arkqueue.workflow.nodes import MAX_FAULTS, Node
from arkqueue.workflow.source import read
from arkqueue.workflow.values import shown

WORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class _Reference(NamedTuple):
    """``owner``: the part of the schema that has the keyword ``word``."""

    owner: dict[str, Any]
    word: str
    target: str


def faults_of_references(file: SourceFile, schema: Any) -> list[Fault]:
    """The faults of the references of the schema in a file, up to ``MAX_FAULTS``."""
    fault = "leads out of the file, to {}; write what it means below $defs, and refer to that with '#/$defs/NAME'"
    found = list(islice((one for one in _all(schema) if not one.target.startswith("#")), MAX_FAULTS))
    if not found:
        fault = "refers to {}, which is no schema of the file; correct its name, or add it"
        found = list(islice(_broken(schema), MAX_FAULTS))
    if not found:
        fault = "refers to {}, which leads back to it without a step into the payload, so it has no end; remove one of these references"
        found = list(islice(_endless(schema), MAX_FAULTS))
    if not found:
        return []
    places, root = _places(schema, {id(one.owner) for one in found}), read(file).root
    faults = []
    for one in found:
        line, column = position_in(root, [*places[id(one.owner)], one.word])
        faults.append(Fault(file.path, line, column, f"{one.word} {fault.format(shown(one.target))}", one.target))
    return sorted(faults, key=lambda one: (one.line, one.column))


def position(file: SourceFile, place: Iterable[str | int]) -> tuple[int, int]:
    """Line and column of a part of the document in a file, from 1; 0 if they are not known."""
    return position_in(read(file).root, place)


def position_in(node: Node | None, place: Iterable[str | int] | None) -> tuple[int, int]:
    """Line and column of a part of a document; 0 if they are not known."""
    if place is None:
        return 0, 0
    for step in place:
        if node is None:
            break
        if isinstance(node.value, dict):
            node = entry.value if (entry := node.value.get(str(step))) else None
        elif isinstance(node.value, list):
            node = node.value[int(step)]
    return (node.line, node.column) if node else (0, 0)


def _all(schema: Any) -> Iterator[_Reference]:
    """All references. The function is not recursive, because the depth of the schema is not known
    yet.
    """
    left = [schema]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            yield from (_Reference(one, word, one[word]) for word in WORDS if isinstance(one.get(word), str))
            left += reversed(one.values())
        elif isinstance(one, list):
            left += reversed(one)


def _broken(schema: Any) -> Iterator[_Reference]:
    """The references that lead to no schema, in the parts that are schemas, or to which a reference
    leads. Those inside examples and constants mean nothing.
    """
    return (one for one, found in _followed(schema) if not isinstance(found, dict | bool))


def _endless(schema: Any) -> Iterator[_Reference]:
    """One reference of each circle of references. A part of the schema judges the same value as the
    part to which its `$ref` leads, and as the parts of its `allOf`. So a circle of such steps never
    ends. Other steps may end, and are not judged. All references lead to a schema.
    """
    refs = {id(one.owner): (one, found) for one, found in _followed(schema) if one.word == "$ref"}
    done: set[int] = set()
    for start, _ in refs.values():
        if id(start.owner) in done:
            continue
        # The way to each part: the parts on it, with the reference that led there and the next steps.
        way: list[tuple[int, _Reference | None, Iterator[tuple[_Reference | None, Any]]]] = [
            (id(start.owner), None, _same_value(start.owner, refs))
        ]
        on_way = {id(start.owner): 0}
        while way:
            here, _, steps = way[-1]
            by, part = next(steps, (None, None))
            if part is None:
                way.pop()
                del on_way[here]
                done.add(here)
            elif id(part) in on_way:
                circle = [by, *(led for _, led, _ in reversed(way[on_way[id(part)] + 1 :]))]
                yield next(led for led in circle if led is not None)
            elif id(part) not in done:
                on_way[id(part)] = len(way)
                way.append((id(part), by, _same_value(part, refs)))


def _same_value(part: dict[str, Any], refs: dict[int, Any]) -> Iterator[tuple[_Reference | None, Any]]:
    """The parts of a schema that judge the same value as one part, each with the reference that leads
    there.
    """
    if id(part) in refs:
        one, found = refs[id(part)]
        if isinstance(found, dict):
            yield one, found
    every = part.get("allOf")
    yield from ((None, one) for one in every if isinstance(one, dict)) if isinstance(every, list) else ()


def _followed(schema: Any) -> Iterator[tuple[_Reference, Any]]:
    """The references in the parts that are schemas, or to which a reference leads, each with the part
    to which it leads (None: it leads nowhere).
    """
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    root = Resource.from_contents(schema, default_specification=DRAFT202012)
    uri = root.id() or ""
    # A registry that does not know all identifiers searches the whole schema for each reference.
    left = [(root, Registry().with_resource(uri, root).crawl().resolver(uri))]
    seen = set()
    while left:
        resource, resolver = left.pop()
        part = resource.contents
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        for word in WORDS:
            target = part.get(word)
            if not isinstance(target, str):
                continue
            try:
                found = resolver.lookup(target)
            except (Unresolvable, LookupError, ValueError, TypeError):  # the library looks into lists and texts, too
                yield _Reference(part, word, target), None
                continue
            if isinstance(found.contents, dict | bool):
                left.append((Resource.from_contents(found.contents, DRAFT202012), found.resolver))
            yield _Reference(part, word, target), found.contents
        left += ((one, resolver.in_subresource(one)) for one in resource.subresources())


def _places(schema: Any, wanted: set[int]) -> dict[int, list[str | int]]:
    """The paths to some parts of the schema, by their identities."""
    found: dict[int, list[str | int]] = {}
    left: list[tuple[Any, list[str | int]]] = [(schema, [])]
    while left and len(found) < len(wanted):
        one, place = left.pop()
        if id(one) in wanted:
            found.setdefault(id(one), place)
        if isinstance(one, dict):
            left += ((value, [*place, word]) for word, value in one.items())
        elif isinstance(one, list):
            left += ((value, [*place, index]) for index, value in enumerate(one))
    return found
