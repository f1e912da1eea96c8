"""Random Subversion histories, loaded by `svnadmin load`, which accepts more than clients commit.

    history = RandomHistory(seed=3)
    for _ in range(20):
        history.commit()
    history.load(repository)

``load_project`` loads the history of a Git repository into Subversion. The random files have each
property that affects `svn export`, with right and wrong values, and texts that it affects.
"""

from __future__ import annotations

import itertools
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pygit2
from pygit2.enums import FileMode

from tests.repositories import SubversionRepository, run

Properties = dict[str, bytes]

KEYWORDS = b"$Id$ $Rev$\n$Revision: 7 $ $LastChangedRevision::    $\r\n$Date$ $Author::   $ $URL$\r$HeadURL:: a much longer one $ $Header$ $My$ $Their:: $"
TEXTS = (
    b"", b"\n", b"one\ntwo\n", b"one\r\ntwo\r\n", b"one\rtwo", b"all\r\nof\nthem\r", b"link one", b"linger",
    KEYWORDS, KEYWORDS * 700, b"x" * 16380 + b"$Rev$\r\n" * 9, b"y" * 16383 + b"\r\n" + KEYWORDS, b"$Rev" * 80 + b"$",
    b"\xff\xfe" + "$Id$\r\nä\n".encode("utf-16-le"), bytes(range(256)) * 3 + b"$Id$", b"$Rev: " + b"w" * 240 + b" $ $Rev:: x#$",
)  # fmt: skip
VALUES: dict[str, tuple[bytes, ...]] = {
    "svn:eol-style": (b"native", b"LF", b"CR", b"CRLF", b"nonsense", b""),
    "svn:keywords": (
        b"Id", b"Rev Date Author URL Header", b"LastChangedRevision,HeadURL\nLastChangedBy LastChangedDate", b"",
        b"My=%r%_%a%%%n%b%_%P Their=%H%_%I%_%d%_%D%_%u%_%R Id", b"none of ours",
    ),
    "svn:special": (b"*",),
    "svn:executable": (b"*", b""),
    "svn:needs-lock": (b"*",),
    "svn:mime-type": (b"application/octet-stream", b"text/plain; charset=UTF-16LE"),
    "own": (b"1", b"2"),
}  # fmt: skip
FOLDER_VALUES = {
    "svn:auto-props": b"* = svn:eol-style=CRLF;svn:keywords=Id", "svn:keywords": b"Id Rev", "svn:eol-style": b"CRLF", "own": b"1",
    "svn:executable": b"*",
}  # fmt: skip
NAMES = ("a", "b.txt", "c d", "é%+~&'", "e$f#g")
AUTHORS = (b"ada", "Zoë Ångström".encode(), b"$Id$", b"", None)


@dataclass(frozen=True)
class Node:
    """A file, or a folder if there is no text."""

    text: bytes | None
    properties: Properties = field(default_factory=dict)

    def __post_init__(self) -> None:
        """`svn export` loses the text after a NUL in such a file, and arkqueue does not."""
        if self.text is not None and b"\0" in self.text:
            self.properties.pop("svn:special", None)


Tree = dict[str, Node]


class RandomHistory:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.trees: list[Tree] = [{}, {"trunk": Node(None)}]
        self._dump = Dump()
        self._begin(1)
        self._dump.node("trunk", "add", Node(None))

    @property
    def head(self) -> int:
        return len(self.trees) - 1

    def commit(self) -> None:
        tree = dict(self.trees[-1])
        self._begin(len(self.trees))
        touched: set[str] = set()
        for _ in range(self.random.randint(1, 5)):
            self._change(tree, touched)
        self.trees.append(tree)

    def load(self, repository: SubversionRepository) -> None:
        self._dump.load(repository)

    def _change(self, tree: Tree, touched: set[str]) -> None:
        path = self._place(tree)
        if any((other + "/").startswith(path + "/") or path.startswith(other + "/") for other in touched):
            return
        touched.add(path)
        old = tree.get(path)
        chance = self.random.random()
        if chance < 0.15 and old is None and (source := self._source(path)):
            self._copy(tree, path, *source)
        elif old is None:
            tree[path] = Node(None) if chance < 0.4 else self._file()
            self._dump.node(path, "add", tree[path])
        elif chance < 0.12:
            self._remove(tree, path)
            self._dump.node(path, "delete")
        elif chance < 0.17:
            self._remove(tree, path)
            tree[path] = Node(None) if self.random.random() < 0.4 else self._file()
            self._dump.node(path, "delete")
            self._dump.node(path, "add", tree[path])
        elif old.text is None:
            name, value = self.random.choice(list(FOLDER_VALUES.items()))
            tree[path] = Node(None, {name: value})
            self._dump.node(path, "change", tree[path])
        else:
            new = self._file()
            tree[path] = self.random.choice(
                [
                    Node(new.text, dict(old.properties)),
                    Node(old.text, new.properties),
                    Node(old.text, self._near(old)),
                    new,
                ]
            )
            self._dump.node(path, "change", tree[path])

    def _place(self, tree: Tree) -> str:
        folders = [path for path, node in tree.items() if node.text is None and path.count("/") < 3]
        existing = [path for path in tree if path != "trunk"]
        if existing and self.random.random() < 0.6:
            return self.random.choice(existing)
        return f"{self.random.choice(folders)}/{self.random.choice(NAMES)}"

    def _file(self) -> Node:
        names = self.random.sample(list(VALUES), self.random.choice([0, 1, 1, 2, 3]))
        properties = {name: self.random.choice(VALUES[name]) for name in names}
        return Node(self.random.choice(TEXTS), properties)

    def _near(self, old: Node) -> Properties:
        """The properties with one more, one less, or another one."""
        name = self.random.choice(list(VALUES))
        rest = {other: value for other, value in old.properties.items() if other != name}
        return rest if name in old.properties else {**rest, name: self.random.choice(VALUES[name])}

    def _source(self, path: str) -> tuple[int, str] | None:
        number = self.random.randint(1, self.head)
        found = [other for other in self.trees[number] if not (path + "/").startswith(other + "/")]
        return (number, self.random.choice(found)) if found else None

    def _copy(self, tree: Tree, path: str, number: int, source: str) -> None:
        for other, node in self.trees[number].items():
            if (other + "/").startswith(source + "/"):
                tree[path + other.removeprefix(source)] = node
        kind = "dir" if tree[path].text is None else "file"
        self._dump.copy(path, kind, number, source)

    def _remove(self, tree: Tree, path: str) -> None:
        for other in [other for other in tree if (other + "/").startswith(path + "/")]:
            del tree[other]

    def _begin(self, number: int) -> None:
        microseconds = self.random.choice([0, 1, 999_999, 123_456])
        date = f"2024-0{number % 9 + 1}-1{number % 7}T08:{number % 60:02}:07.{microseconds:06}Z"
        self._dump.begin(date.encode(), self.random.choice(AUTHORS))


class Dump:
    """The input of ``svnadmin load``."""

    def __init__(self) -> None:
        self.head = 0
        self._texts = [b"SVN-fs-dump-format-version: 2\n\n"]

    def begin(self, date: bytes, author: bytes | None) -> None:
        """Starts the next revision; its nodes follow."""
        self.head += 1
        properties = {"svn:date": date}
        if author is not None:
            properties["svn:author"] = author
        block = _properties(properties)
        lengths = self.head, len(block), len(block)
        head = b"Revision-number: %d\nProp-content-length: %d\nContent-length: %d\n\n" % lengths
        self._texts.append(head + block + b"\n")

    def node(self, path: str, action: str, node: Node | None = None) -> None:
        self._texts.append(f"Node-path: {path}\nNode-action: {action}\n".encode())
        if node is None:
            self._texts.append(b"\n\n")
            return
        block, text = _properties(node.properties), node.text or b""
        kind = b"Node-kind: dir\n" if node.text is None else b"Node-kind: file\nText-content-length: %d\n" % len(text)
        lengths = b"Prop-content-length: %d\nContent-length: %d\n\n" % (len(block), len(block) + len(text))
        self._texts.append(kind + lengths + block + text + b"\n\n")

    def copy(self, path: str, kind: str, number: int, source: str) -> None:
        source_lines = f"Node-copyfrom-rev: {number}\nNode-copyfrom-path: {source}"
        self._texts.append(f"Node-path: {path}\nNode-kind: {kind}\nNode-action: add\n{source_lines}\n\n\n".encode())

    def load(self, repository: SubversionRepository) -> None:
        subprocess.run(
            ["svnadmin", "load", "-q", "--bypass-prop-validation", str(repository.path)],
            input=b"".join(self._texts), check=True, capture_output=True,
        )  # fmt: skip
        assert run("svnlook", "youngest", repository.path).strip() == str(self.head)


def _properties(properties: Properties) -> bytes:
    pairs = (
        b"K %d\n%s\nV %d\n%s\n" % (len(name.encode()), name.encode(), len(value), value)
        for name, value in properties.items()
    )
    return b"".join(pairs) + b"PROPS-END\n"


PROPERTIES = {
    "svn:keywords": b"Id Rev Author Date URL", "svn:eol-style": b"CRLF",
}  # fmt: skip
"""The properties of each text file of the project."""


def load_project(git: Path, repository: SubversionRepository, most: int) -> int:
    """Loads commits of a Git repository, spread evenly over its history, as revisions below
    ``trunk``. Returns their number.
    """
    source = pygit2.Repository(str(git))
    chain = [source[source.head.target].peel(pygit2.Commit)]
    while chain[-1].parents:
        chain.append(chain[-1].parents[0])
    chain.reverse()
    chosen = chain[:: -(-len(chain) // most)] + chain[-1:]
    dump, before, folders = Dump(), dict[str, pygit2.Oid](), {"trunk"}
    for number, commit in enumerate(chosen):
        dump.begin(f"2024-01-01T00:{number // 60:02}:{number % 60:02}.000000Z".encode(), commit.author.name.encode())
        if number == 0:
            dump.node("trunk", "add", Node(None))
        now = dict(_files(commit.tree, "trunk"))
        for path in before.keys() - now.keys():
            dump.node(path, "delete")
        for path in sorted(path for path, id in now.items() if before.get(path) != id):
            parents = path.split("/")[:-1]
            for folder in ("/".join(parts) for parts in itertools.accumulate([part] for part in parents)):
                if folder not in folders:
                    folders.add(folder)
                    dump.node(folder, "add", Node(None))
            if path in folders:  # a former folder, whose files are gone
                folders -= {folder for folder in folders if (folder + "/").startswith(path + "/")}
                dump.node(path, "delete")
            text = source[now[path]].peel(pygit2.Blob).data
            properties = {} if b"\0" in text else dict(PROPERTIES)
            dump.node(path, "change" if path in before else "add", Node(text, properties))
        before = now
    dump.load(repository)
    return dump.head


def _files(tree: pygit2.Tree, folder: str) -> Iterator[tuple[str, pygit2.Oid]]:
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            yield from _files(entry, f"{folder}/{entry.name}")
        elif isinstance(entry, pygit2.Blob) and entry.filemode != FileMode.LINK:
            yield f"{folder}/{entry.name}", entry.id
