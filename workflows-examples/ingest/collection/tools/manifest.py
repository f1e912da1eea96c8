"""Checkm manifests: what a depositor's manifest names, and the one that storage gets.

https://github.com/CDLUC3/mrt-doc: a line for each file, with the fields that ``#%fields`` names; what does not end with ``#%eof`` was cut off.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from job import Rejected, digest

PROFILES = {
    "mrt-ingest-manifest": "ObjectManifest",
    "mrt-single-file-batch-manifest": "ManifestOfFiles",
    "mrt-container-batch-manifest": "ManifestOfContainers",
    "mrt-batch-manifest": "ManifestOfManifests",
}
FIELDS = {
    "nfo:fileurl": "url",
    "nfo:hashalgorithm": "digest_type",
    "nfo:hashvalue": "digest_value",
    "nfo:filesize": "size",
    "nfo:filename": "name",
    "mrt:primaryidentifier": "ark",
    "mrt:localidentifier": "local_id",
    "mrt:creator": "erc_who",
    "mrt:title": "erc_what",
    "mrt:date": "erc_when",
}
FIRST = b"#%checkm"
MOST = 1_000_000
"""Lines of a manifest."""
LONGEST_FIELD = 4000
LONGEST_NAME = 255
"""Bytes of a name in a folder: more no file system takes."""
LONGEST_SIZE = 18
"""Digits of a size."""
ARK = re.compile(r"ark:/[0-9]{5}/[A-Za-z0-9]+")


@dataclass
class Manifest:
    kind: str
    lines: list[dict[str, Any]]


def parse(data: bytes, name: str) -> Manifest:
    """A manifest, or `Rejected` with the first line that is wrong."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Rejected(f"{name}: the manifest is not UTF-8: byte {error.start}") from None
    kind, columns, lines, is_complete = "", [], [], False
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}, line {number}"
        if number == 1 and not line.startswith("#%checkm"):
            raise Rejected(f"{where}: the manifest does not begin with #%checkm")
        if line.startswith("#%"):
            word, _, rest = line[2:].partition("|")
            word = word.strip().lower()
            if word == "profile":
                kind = PROFILES.get(rest.strip().rpartition("/")[2], "")
                if not kind:
                    raise Rejected(f"{where}: the profile {rest.strip()[:200]} is not known")
            elif word == "fields":
                columns = [FIELDS.get(column.strip().lower(), "") for column in rest.split("|")]
            elif word == "eof":
                is_complete = True
                break
        elif line.strip() and not line.startswith("#"):
            if len(lines) == MOST:
                raise Rejected(f"{where}: the manifest has more than {MOST:,} lines")
            lines.append(_line(line, columns, where))
    if not is_complete:
        raise Rejected(f"{name}: the manifest is cut off: its last line is not #%eof")
    if not kind:
        raise Rejected(f"{name}: the manifest names no #%profile")
    if not lines:
        raise Rejected(f"{name}: the manifest names no file")
    if kind == "ObjectManifest":
        check_files(lines, name)
    return Manifest(kind, lines)


def _line(line: str, columns: list[str], where: str) -> dict[str, Any]:
    values = [value.strip() for value in line.split("|")]
    if not columns:
        raise Rejected(f"{where}: no #%fields stands before it")
    if len(values) > len(columns):
        raise Rejected(f"{where}: has {len(values)} values, and #%fields names {len(columns)}")
    entry: dict[str, Any] = {field: value for field, value in zip(columns, values, strict=False) if field and value}
    check_entry(entry, where)
    return entry


def check_entry(entry: dict[str, Any], where: str) -> None:
    """See that an entry has what is needed to fetch it, and that its fields are what they are called."""
    for field, value in entry.items():
        is_text = isinstance(value, str) or (field == "size" and type(value) is int)
        if not is_text or len(str(value)) > LONGEST_FIELD or not str(value).isprintable():
            raise Rejected(f"{where}: {field} is not a text of one line with at most {LONGEST_FIELD} characters")
    if "url" not in entry:
        raise Rejected(f"{where}: names no file URL")
    if "ark" in entry and not ARK.fullmatch(str(entry["ark"])):
        raise Rejected(f"{where}: {entry['ark']} is not an ARK like ark:/99999/fk4abc")
    if ("digest_type" in entry) != ("digest_value" in entry):
        raise Rejected(f"{where}: a hash needs its algorithm and its value")
    if "digest_type" in entry:
        wanted = digest(entry["digest_type"]).digest_size * 2
        if len(entry["digest_value"]) != wanted or set(entry["digest_value"].lower()) - set("0123456789abcdef"):
            raise Rejected(f"{where}: {entry['digest_value'][:200]} is no {entry['digest_type']}")
    if "size" in entry:
        if not str(entry["size"]).isdecimal() or len(str(entry["size"])) > LONGEST_SIZE:
            raise Rejected(f"{where}: the size {str(entry['size'])[:200]} is not a number of bytes")
        entry["size"] = int(entry["size"])


def check_files(files: Iterable[dict[str, Any]], where: str) -> None:
    """See that each file of an object has a name of its own inside the object."""
    check_names((e.setdefault("name", e["url"].partition("?")[0].rpartition("/")[2]) for e in files), where)


def check_names(names: Iterable[str], where: str) -> None:
    """See that names are those of different files, and none is that of a folder, too."""
    seen: set[str] = set()
    for name in names:
        check_name(name, where)
        if name in seen:
            raise Rejected(f"{where}: two files have the name {name[:200]}")
        seen.add(name)
    # In this order, a folder stands right before what is in it.
    for one, following in pairwise(sorted(name.split("/") for name in seen)):
        if following[: len(one)] == one:
            raise Rejected(f"{where}: {'/'.join(one)[:200]} is the name of a file and of a folder")


def check_name(name: str, where: str) -> None:
    """See that a name is one of a file inside an object, which can stand in a manifest."""
    is_odd = not name.isprintable() or {"|", "\\"} & {*name} or name != name.strip()
    parts = name.split("/")
    is_long = len(name) > LONGEST_FIELD or any(len(part.encode("utf-8", "replace")) > LONGEST_NAME for part in parts)
    if {"", ".", ".."} & {*parts} or is_odd or is_long:
        raise Rejected(f"{where}: {name[:200]!r} is not a valid name for a file of an object")


def of_storage(files: Iterable[Mapping[str, Any]]) -> str:
    """The manifest that storage reads."""
    head = (
        "#%checkm_0.7\n#%profile | http://uc3.cdlib.org/registry/store/manifest/mrt-add-manifest\n"
        "#%fields | nfo:fileUrl | nfo:hashAlgorithm | nfo:hashValue | nfo:fileSize | nfo:fileName\n"
    )
    lines = (
        f"{file['url']} | {file['digest_type']} | {file['digest_value']} | {file['size']} | {file['name']}\n"
        for file in files
    )
    return head + "".join(lines) + "#%eof\n"
