"""Small workflows, archives and names that several test files share."""

from __future__ import annotations

from tests.builders import AnArchive

STRICT = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]"}
DIAMOND = {
    "a": "",
    "b": "depends: [a]",
    "c": "depends: [a]",
    "d": "depends: [b, c]",
    "clean": "depends: [{task: a, when: settled}]",
}
CHAIN = {"a": "depends: [PREV]", "b": "depends: [a]"}


def two(archive: AnArchive) -> AnArchive:
    archive.commit(CHAIN)
    archive.commit(CHAIN)
    return archive


def short(name: str) -> str:
    return name.replace("papers@", "")
