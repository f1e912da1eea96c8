"""The rules for names of attached files of a submission (design 5.31): relative paths that stay in
their folder and differ on every file system. Pure.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from arkqueue.model import Attachment
from arkqueue.text import visible
from arkqueue.workflow.values import shown

LONGEST_NAME: Final = 1000
LONGEST_PART: Final = 255
"""The most bytes of a name in UTF-8, and of each part between two slashes: the limits of file
systems.
"""


def misnamed(files: Sequence[Attachment]) -> list[str]:
    """The faults of the names of some attachments, one sentence each."""
    faults = []
    spelled: dict[str, tuple[str, bool]] = {}
    """Each file and folder, by its name as the least exact file system compares it: the name as
    written, and whether it is a file.
    """
    for file in files:
        if fault := _fault(file.name):
            faults.append(f"{shown(file.name)} {fault}")
            continue
        parts = file.name.split("/")
        for count in range(1, len(parts) + 1):
            path, is_file = "/".join(parts[:count]), count == len(parts)
            folded = _folded(path)
            if folded not in spelled:
                spelled[folded] = path, is_file
                continue
            other, was_file = spelled[folded]
            if other != path:
                fault = (
                    f"{shown(path)} and {shown(other)} are one name where capital and small letters count as the same"
                )
            elif is_file != was_file:
                fault = f"{shown(path)} is a file and a folder"
            elif is_file:
                fault = f"{shown(path)} is given twice"
            else:
                continue
            faults.append(fault)
            break
    return faults


def digest_of(files: Iterable[Attachment]) -> str:
    """A digest that identifies the attachments of a submission: the SHA-256 of their names, sizes
    and digests, independent of their order.
    """
    told = sorted((file.name, file.size, file.digest) for file in files)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _fault(name: str) -> str:
    """The fault of one name; empty if it has none."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "is not UTF-8; rename it"
    if len(encoded) > LONGEST_NAME or any(len(part.encode()) > LONGEST_PART for part in name.split("/")):
        return f"is too long: a name has at most {LONGEST_NAME} bytes, and {LONGEST_PART} between two slashes"
    if visible(name) != name or "\n" in name or "\t" in name:
        return "has a control character; rename it"
    if not {"", ".", ".."}.isdisjoint(name.split("/")):
        return "is not a path inside a folder; write it without '/' at its ends, '//', '.' and '..'"
    return ""


def _folded(path: str) -> str:
    """A path for comparisons: some file systems do not distinguish capital and small letters, or
    two spellings of an accent.
    """
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())
