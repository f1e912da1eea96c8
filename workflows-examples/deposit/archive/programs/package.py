"""Assemble the package of a deposit: a zip with checksums, which is a BagIt bag where the target wants one.

The same submission makes the same package, byte for byte: so a target can tell whether it has it already.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from pathlib import Path
from typing import IO, Any

import bagit
from targets import Target
from task import Failure, Task, attachments, run, scratch, submission, target_name

LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every entry: the earliest that a zip file can have."""
PIECE = 1 << 20


def sha256(source: IO[bytes]) -> str:
    return hashlib.file_digest(source, "sha256").hexdigest()


def add(package: zipfile.ZipFile, name: str, file: Path) -> None:
    entry = zipfile.ZipInfo(name, LONG_AGO)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    with file.open("rb") as source, package.open(entry, "w", force_zip64=True) as stored:
        shutil.copyfileobj(source, stored, PIECE)


def bag(folder: Path, document: dict[str, Any], package: zipfile.ZipFile) -> None:
    """A bag of BagIt 1.0 with SHA-256 manifests, in a folder of its name."""
    top = folder / document["id"]
    for name, file in attachments():
        place = top / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    information = {
        "External-Identifier": document["id"],
        "External-Description": document["title"],
        "Contact-Name": document.get("authors", []),
        "Bagging-Date": document["date"],
    }
    made = bagit.make_bag(str(top), bag_info=information, checksums=["sha256"])
    made.validate()
    for file in sorted(file for file in top.rglob("*") if file.is_file()):
        add(package, str(file.relative_to(folder)), file)


def plain(folder: Path, document: dict[str, Any], package: zipfile.ZipFile) -> None:
    """The files, what the submission says of them, and a manifest with the SHA-256 of each entry."""
    about = folder / "submission.json"
    about.write_text(
        json.dumps({key: value for key, value in document.items() if key != "items"}, indent=1) + "\n", "utf-8"
    )
    manifest = folder / "manifest-sha256.txt"
    with manifest.open("w", encoding="utf-8") as lines:
        for name, file in [(about.name, about), *((f"files/{name}", file) for name, file in attachments())]:
            with file.open("rb") as source:
                lines.write(f"{sha256(source)}  {name}\n")
            add(package, name, file)
    add(package, manifest.name, manifest)


ASSEMBLERS = {"bagit": bag, "zip": plain}


def assemble(task: Task) -> None:
    document, target = submission(), Target.load(target_name())
    task.outputs["deposit"] = f"{document['id']}/{target.name}"
    if target.assembler not in ASSEMBLERS:
        raise Failure(
            f"target {target.name}: there is no assembler {target.assembler!r}; known: {', '.join(ASSEMBLERS)}"
        )
    folder, made = scratch() / "assembly", scratch() / "package.zip"
    # What an attempt left that was stopped midway.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with zipfile.ZipFile(made, "w") as package:
        ASSEMBLERS[target.assembler](folder, document, package)
    shutil.rmtree(folder)
    with made.open("rb") as source:
        task.outputs["sha256"] = sha256(source)
    task.outputs |= {"name": f"{document['id']}.zip", "bytes": str(made.stat().st_size)}
    task.outputs["message"] = f"{made.stat().st_size} bytes, {target.assembler}"


run(assemble)
