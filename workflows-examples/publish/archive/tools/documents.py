"""The documents of the archive: each file below a folder, with its title and text."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

ROOT = os.fsencode(os.environ.get("DOCUMENTS", "documents"))
"""Where they are; `.` for all files of the archive."""


@dataclass(frozen=True)
class Document:
    """A document; ``path`` begins at the archive's root. Its name is bytes, as a Git archive may have any."""

    path: bytes
    title: str
    body: str

    @property
    def anchor(self) -> str:
        """Its place in the PDF, to which the search page leads."""
        return "d-" + hashlib.sha256(self.path).hexdigest()[:12]


def is_one(path: bytes) -> bool:
    """Whether a path of the archive's tree is that of a document."""
    return (ROOT == b"." or path.startswith(ROOT + b"/")) and os.path.isfile(path) and not os.path.islink(path)


def read(path: bytes) -> Document:
    """The title is the first heading, or else the file's name."""
    with open(path, "rb") as file:
        body = file.read().decode("utf-8", "replace").replace("\0", "\ufffd")
    heading = re.search(r"^#+ +(\S.*)$", body, re.MULTILINE)
    name = os.path.basename(path).decode("utf-8", "replace")
    return Document(path, heading[1].strip() if heading else name, body)


def everything() -> Iterator[Document]:
    """All documents of the workspace, by their paths."""
    for folder, folders, names in os.walk(ROOT):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), b".")
            if is_one(path):
                yield read(path)
