"""Random Git histories, loaded by `git fast-import`: names in any encoding, moves, links, modes,
folders that become files, and merges.

history = RandomHistory(seed=3)
for _ in range(20):
    history.commit()
history.load(repository)
"""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass

from tests.repositories import GitRepository

Name = tuple[bytes, ...]
"""The parts of a path."""

NAMES = (b"a", b"b.txt", b"c d", "é 📖".encode(), b"n\xff\xfe", b'"q"\t', b"$(id)")
WORDS = (b"one", b"two", "drei é".encode(), b"\xff\xfe", b"four\nfive", b"")
FILE, PROGRAM, LINK = b"100644", b"100755", b"120000"


@dataclass(frozen=True)
class Blob:
    mode: bytes
    text: bytes


Tree = dict[Name, Blob]


class RandomHistory:
    """Commits on main, and sometimes a branch that is merged."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.tree: Tree = {}
        self._stream: list[bytes] = []
        self._marks = 0
        self._main = 0

    def commit(self) -> None:
        """Makes one more commit on main."""
        self._main = self._merge() if self._main and self.random.random() < 0.1 else self._one(b"main", self._main)

    def load(self, repository: GitRepository) -> None:
        subprocess.run(
            ["git", "fast-import", "--quiet"], cwd=repository.path, input=b"".join(self._stream), check=True, capture_output=True
        )  # fmt: skip

    def _merge(self) -> int:
        """Makes a branch with one or two commits while main changes, and merges it. Each side wins
        somewhere.
        """
        before = dict(self.tree)
        topic = self._one(b"topic", self._main)
        if self.random.random() < 0.5:
            topic = self._one(b"topic", topic)
        theirs, self.tree = self.tree, before
        ours = self._one(b"main", self._main, first=True)
        for path in {*self.tree, *theirs}:
            if self.random.random() < 0.6:
                self._put(path, theirs.get(path))
        return self._written(b"main", ours, topic)

    def _one(self, branch: bytes, parent: int, *, first: bool = False) -> int:
        for _ in range(self.random.randint(0, 1) if first else self.random.randint(1, 4)):
            self._change()
        return self._written(branch, parent)

    def _written(self, branch: bytes, *parents: int) -> int:
        """Writes a commit with its whole tree, so that Git's result is exactly the intended one."""
        self._marks += 1
        lines = [
            b"commit refs/heads/%b\nmark :%d\ncommitter Ada <ada@example.org> %d +0000\ndata 0\n"
            % (branch, self._marks, self._marks)
        ]
        for word, parent in zip((b"from", b"merge"), filter(None, parents), strict=False):
            lines.append(b"%b :%d\n" % (word, parent))
        lines.append(b"deleteall\n")
        for path, blob in self.tree.items():
            lines.append(b"M %b inline %b\ndata %d\n%b\n" % (blob.mode, _quoted(path), len(blob.text), blob.text))
        self._stream += [*lines, b"\n"]
        return self._marks

    def _change(self) -> None:
        paths = [*self.tree]
        chance = self.random.random()
        if not paths or chance < 0.5:
            self._put(self._path(), self._blob())
        elif chance < 0.65:
            path = self.random.choice(paths)
            self._put(path, Blob(self.random.choice((FILE, PROGRAM, LINK)), self.tree[path].text or b"x"))
        elif chance < 0.8:
            self._put(self._some(paths), None)
        else:
            self._move(self._some(paths), self._path())

    def _some(self, paths: list[Name]) -> Name:
        """A file, or a folder that contains a file."""
        path = self.random.choice(paths)
        return path[: self.random.randint(1, len(path))]

    def _move(self, old: Name, new: Name) -> None:
        if new[: len(old)] == old:
            return
        moved = {path: blob for path, blob in self.tree.items() if path[: len(old)] == old}
        self._put(old, None)
        self._put(new, None)
        for path, blob in moved.items():
            self._put(new + path[len(old) :], blob)

    def _put(self, path: Name, blob: Blob | None) -> None:
        """Puts a file at a path, or removes what is there."""
        beside = {other for other in self.tree if other[: len(path)] == path or path[: len(other)] == other}
        self.tree = {other: there for other, there in self.tree.items() if other not in beside}
        if blob is not None:
            self.tree[path] = blob

    def _path(self) -> Name:
        return tuple(self.random.choice(NAMES) for _ in range(self.random.randint(1, 3)))

    def _blob(self) -> Blob:
        text = b" ".join(self.random.choice(WORDS) for _ in range(self.random.randint(0, 9)))
        return Blob(self.random.choice((FILE, FILE, FILE, PROGRAM)), text)


def _quoted(path: Name) -> bytes:
    return b'"%b"' % b"".join(b"\\%03o" % byte for byte in b"/".join(path))
