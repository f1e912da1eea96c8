"""Made Subversion histories, loaded by `svnadmin load`, which takes what no client would commit.

    history = RandomHistory(seed=3)
    for _ in range(20):
        history.commit()
    history.load(repository)

Files get each property that `svn export` looks at, with right and wrong values, and texts in which it matters.
"""

from __future__ import annotations

import random
import subprocess
from dataclasses import dataclass, field

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
    """A file, or (without a text) a folder."""

    text: bytes | None
    properties: Properties = field(default_factory=dict)

    def __post_init__(self) -> None:
        """`svn export` loses what follows a NUL in such a file, and arkqueue does not."""
        if self.text is not None and b"\0" in self.text:
            self.properties.pop("svn:special", None)


Tree = dict[str, Node]


class RandomHistory:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.trees: list[Tree] = [{}, {"trunk": Node(None)}]
        self._dump = [b"SVN-fs-dump-format-version: 2\n\n"]
        self._begin(1)
        self._node("trunk", "add", Node(None))

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
        subprocess.run(
            ["svnadmin", "load", "-q", "--bypass-prop-validation", str(repository.path)],
            input=b"".join(self._dump), check=True, capture_output=True,
        )  # fmt: skip
        assert run("svnlook", "youngest", repository.path).strip() == str(self.head)

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
            self._node(path, "add", tree[path])
        elif chance < 0.12:
            self._remove(tree, path)
            self._node(path, "delete")
        elif chance < 0.17:
            self._remove(tree, path)
            tree[path] = Node(None) if self.random.random() < 0.4 else self._file()
            self._node(path, "delete")
            self._node(path, "add", tree[path])
        elif old.text is None:
            name, value = self.random.choice(list(FOLDER_VALUES.items()))
            tree[path] = Node(None, {name: value})
            self._node(path, "change", tree[path])
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
            self._node(path, "change", tree[path])

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
        """One property more, less or other."""
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
        self._dump.append(
            f"Node-path: {path}\nNode-kind: {kind}\nNode-action: add\nNode-copyfrom-rev: {number}\nNode-copyfrom-path: {source}\n\n\n".encode()
        )

    def _remove(self, tree: Tree, path: str) -> None:
        for other in [other for other in tree if (other + "/").startswith(path + "/")]:
            del tree[other]

    # The dump

    def _begin(self, number: int) -> None:
        author = self.random.choice(AUTHORS)
        microseconds = self.random.choice([0, 1, 999_999, 123_456])
        properties = {
            "svn:date": f"2024-0{number % 9 + 1}-1{number % 7}T08:{number % 60:02}:07.{microseconds:06}Z".encode()
        }
        if author is not None:
            properties["svn:author"] = author
        block = _properties(properties)
        self._dump.append(
            b"Revision-number: %d\nProp-content-length: %d\nContent-length: %d\n\n%s\n"
            % (number, len(block), len(block), block)
        )

    def _node(self, path: str, action: str, node: Node | None = None) -> None:
        self._dump.append(f"Node-path: {path}\nNode-action: {action}\n".encode())
        if node is None:
            self._dump.append(b"\n\n")
            return
        block, text = _properties(node.properties), node.text or b""
        self._dump.append(
            b"Node-kind: dir\n" if node.text is None else b"Node-kind: file\nText-content-length: %d\n" % len(text)
        )
        self._dump.append(b"Prop-content-length: %d\nContent-length: %d\n\n" % (len(block), len(block) + len(text)))
        self._dump.append(block + text + b"\n\n")


def _properties(properties: Properties) -> bytes:
    pairs = (
        b"K %d\n%s\nV %d\n%s\n" % (len(name.encode()), name.encode(), len(value), value)
        for name, value in properties.items()
    )
    return b"".join(pairs) + b"PROPS-END\n"
