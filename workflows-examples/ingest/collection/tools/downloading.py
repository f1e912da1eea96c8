"""The state *downloading* of a job: GET requests side by side, each tried a few times, and digests compared. What is complete is not fetched again."""

from __future__ import annotations

import lzma
import shutil
import time
import zipfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from estimating import announced_size, priority
from job import FULL, Failed, Job, Rejected, digest, end, opened, output, pieces, size
from manifest import check_names
from provisioning import release

AT_ONCE = 8
TRIES = 3
DELAY = 0.5
"""Seconds before the second try, and twice that before the third."""
UNREADABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError, EOFError)
"""What a container raises that is no zip file, is broken, or is encrypted."""


def main() -> None:
    job = Job()
    files = job.read("files.json")
    target = job.folder / "container" if job.payload_type == "container" else job.producer
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            # A part has a number for a name: no file of an object is called so, whatever the depositor has.
            fetched = [
                pool.submit(_fetch, file, target / file["name"], job.folder / "parts" / str(number))
                for number, file in enumerate(files)
            ]
        for future in fetched:
            future.result()
        if job.payload_type == "container":
            unpack(target / files[0]["name"], job.producer, size(job.profile.get("largest", "1TiB")))
            paths = [path for path in job.producer.rglob("*") if path.is_file()]
        else:
            # No more than these, as an earlier manifest may have left others.
            paths = [target / file["name"] for file in files]
        content = [described(path, job.producer) for path in sorted(paths)]
    except OSError as error:
        if error.errno in FULL:
            raise
        raise Failed(str(error)) from None
    if not content:
        raise Rejected(f"{job.payload_url}: holds no file")
    job.write("content.json", content)
    needed = sum(file["size"] for file in content)
    if needed != job.read("estimate.json")["space_needed"]:
        output(space_needed=needed, **{"arkqueue.priority": priority(job, needed)})
    release(job)
    print(f"{job.key}: {len(content)} files, {needed:,} bytes")


def _fetch(file: dict[str, Any], path: Path, part: Path) -> None:
    """A file that is there was complete when it got its name. It is fetched again where the manifest wants another one by now."""
    if path.is_file() and _is_wanted(file, path):
        return
    for place in (path, part):
        place.parent.mkdir(parents=True, exist_ok=True)
    for number in range(1, TRIES + 1):
        try:
            _get(file, part)
            part.replace(path)
            return
        except Failed as error:
            if number == TRIES:
                raise Failed(f"{error}, {TRIES} times") from None
            time.sleep(DELAY * number)


def _is_wanted(file: dict[str, Any], path: Path) -> bool:
    if "size" in file and path.stat().st_size != file["size"]:
        return False
    return "digest_type" not in file or _digest_of(path, file["digest_type"]) == file["digest_value"].lower()


def _digest_of(path: Path, kind: str) -> str:
    hashed = digest(kind)
    with path.open("rb") as file:
        for piece in pieces(file):
            hashed.update(piece)
    return str(hashed.hexdigest())


def _get(file: dict[str, Any], part: Path) -> None:
    hashed = digest(file.get("digest_type", "sha-256"))
    got = 0
    with opened(file["url"]) as answer, part.open("wb") as out:
        for piece in pieces(answer):
            hashed.update(piece)
            out.write(piece)
            got += len(piece)
        announced = announced_size(answer)
    if announced is not None and got != announced:
        raise Failed(f"{file['url']}: broke off after {got:,} of {announced:,} bytes")
    if "size" in file and got != file["size"]:
        raise Failed(f"{file['url']}: has {got:,} bytes, and the manifest says {file['size']:,}")
    if "digest_type" in file and hashed.hexdigest() != file["digest_value"].lower():
        raise Failed(
            f"{file['url']}: its {file['digest_type']} is {hashed.hexdigest()}, and the manifest says {file['digest_value']}"
        )


def unpack(container: Path, target: Path, most: int) -> None:
    """Take the files out of a zip container. Names that lead out of it are rejected, and so is one whose files are larger than ``most`` together."""
    draft = target.with_name("producer.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with zipfile.ZipFile(container) as zipped:
            if sum(entry.file_size for entry in zipped.infolist()) > most:
                raise Rejected(f"{container.name}: its files have more than {most:,} bytes together")
            entries = [entry for entry in zipped.infolist() if not entry.is_dir()]
            check_names((entry.filename for entry in entries), container.name)
            for entry in entries:
                path = draft.joinpath(entry.filename)
                path.parent.mkdir(parents=True, exist_ok=True)
                with zipped.open(entry) as file, path.open("wb") as out:
                    shutil.copyfileobj(file, out, 1 << 20)
    except UNREADABLE as error:
        raise Rejected(f"{container.name}: is not a zip file that can be read: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise Rejected(f"{container.name}: is not a zip file that can be read: {error}") from None  # bzip2 says it so
    shutil.rmtree(target, ignore_errors=True)
    if draft.exists():
        draft.rename(target)


def described(path: Path, root: Path) -> dict[str, Any]:
    name, value = path.relative_to(root).as_posix(), _digest_of(path, "sha-256")
    return {"name": name, "size": path.stat().st_size, "digest_type": "sha-256", "digest_value": value}


if __name__ == "__main__":
    end(main)
