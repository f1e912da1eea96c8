"""Commits that no git would make: any names, modes, sizes and contents. Each is read or refused,
and nothing is written where it may not be.

Made by libgit2, object by object, as a hostile client pushes them to a server that does not check
what it is sent.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pygit2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkqueue.errors import ArkqueueError
from arkqueue.repository import Archive, locate, open_archive
from arkqueue.workflow.parsing import parse
from tests.fuzzing import fuzzed

ODD = [
    b"..",
    b".",
    b".git",
    b".GIT",
    b".git ",
    b"git~1",
    b"/etc",
    b"a/b",
    b"../x",
    b"a\nb",
    b"\x1b[2J",
    b"\xff",
    b"x" * 300,
]
NAMES = st.sampled_from([b"_workflows", b"a", b"b", b"a.yaml", b"b.json", *ODD]) | st.binary(min_size=1, max_size=5)
MODES = st.sampled_from([b"100644", b"100755", b"120000", b"40000", b"160000", b"100664", b"0", b"170000", b"777777"])
CONTENTS = (
    st.sampled_from(
        [
            b"",
            b"../secret",
            b"/etc/passwd",
            b"..",
            b".",
            b"- {name: a, command: 'true', paths: ['**']}\n",
            b"{",
            b"\x00",
        ]
    )
    | st.binary(max_size=8)
    | st.none()
)
FILES = st.tuples(st.sampled_from([b"100644", b"100755", b"120000"]), NAMES, CONTENTS)
ENTRIES: st.SearchStrategy[Any] = st.recursive(
    st.lists(FILES | st.tuples(MODES, NAMES, CONTENTS), max_size=4),
    lambda inner: st.lists(
        st.tuples(st.just(b"40000"), NAMES, inner) | FILES | st.tuples(MODES, NAMES, inner),
        max_size=4,
        unique_by=lambda e: e[1],
    ),
    max_leaves=6,
)
"""Most are what they say they are, or nothing would get further than the first look."""
HEADERS = st.sampled_from(
    [
        b"author Ada <a@example.org> 1 +0000\ncommitter Ada <a@example.org> 1 +0000\n",
        b"author \xff\x00 <<>> 99999999999999999999 +9999\n",
        b"author\ncommitter\nencoding utf-16\n",
        b"committer x <y> -1 +0000\nencoding \xff\ngpgsig -\n -\n",
        b"",
    ]
) | st.binary(max_size=30)


class Forge:
    """A bare repository that takes whatever it is given."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "repository.git"
        self._repository = pygit2.init_repository(str(self.path), bare=True, initial_head="main")

    def commit(self, entries: Any, header: bytes, message: bytes, parent: str | None) -> str:
        raw = b"tree " + self._object(entries).raw.hex().encode() + b"\n"
        if parent is not None:
            raw += b"parent " + parent.encode() + b"\n"
        id = self._write(pygit2.enums.ObjectType.COMMIT, raw + header + b"\n" + message)
        (self.path / "refs/heads/main").write_text(f"{id}\n")
        return str(id)

    def _object(self, content: Any) -> pygit2.Oid:
        if content is None:
            return pygit2.Oid(hex="1" * 40)  # an object that is not there
        if isinstance(content, bytes):
            return self._write(pygit2.enums.ObjectType.BLOB, content)
        raw = b"".join(
            mode + b" " + name.replace(b"\0", b"0") + b"\0" + self._object(c).raw for mode, name, c in content
        )
        return self._write(pygit2.enums.ObjectType.TREE, raw)

    def _write(self, kind: pygit2.enums.ObjectType, raw: bytes) -> pygit2.Oid:
        return self._repository.write(kind, raw)


@pytest.fixture
def forge(tmp_path: Path) -> Forge:
    return Forge(tmp_path)


def tried(act: Callable[[], Any]) -> Any:
    """What it answers; None where it is refused in words."""
    try:
        return act()
    except ArkqueueError as error:
        str(error).encode("utf-8", "surrogatepass")
        return None


@pytest.mark.full
@fuzzed
@given(ENTRIES, ENTRIES, HEADERS, st.binary(max_size=20))
def test_whatever_is_pushed_is_read_or_refused_and_writes_nowhere_else(
    forge: Forge, tmp_path: Path, first: Any, second: Any, header: bytes, message: bytes
) -> None:
    before = forge.commit(first, header, message, None)
    after = forge.commit(second, header, message, before)
    archive: Archive = open_archive(locate(str(forge.path)))
    tried(lambda: archive.baseline("main"))
    tried(lambda: archive.advance("main", None, after))
    for id in (before, after):
        tried(lambda id=id: archive.workflows_key(id))
        if files := tried(lambda id=id: archive.read_workflows(id)):
            parse(files)
    for previous in (None, before):
        for path in tried(lambda previous=previous: archive.changed_paths(previous, after)) or ():
            path.encode()
    outer = tmp_path / "outer"
    outer.mkdir()
    try:
        (outer / "secret").write_text("untouched")
        target = outer / "tree"
        target.mkdir()
        with suppress(ArkqueueError):
            archive.export(before, target)
            archive.update(before, after, target)
        assert sorted(os.listdir(outer)) == ["secret", "tree"]
        assert (outer / "secret").read_text() == "untouched"
    finally:
        shutil.rmtree(outer)
