"""The state *provisioning* of a job: it waits while the working storage is too full. Every job that waits looks for itself, so that none stands before another.

What a job may fetch is reserved until it is there, so that many jobs at once do not fill the disk together.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from job import Job, NotNow, end, output, settings, write


def main() -> None:
    job = Job()
    estimate = job.read("estimate.json")
    storage = settings()["working_storage"]
    # Nobody knows what an unestimated job will take: it needs more room to begin.
    threshold = storage["threshold" if estimate["is_known"] else "threshold_unestimated"]
    with _reservations(storage) as folder:
        disk = shutil.disk_usage(job.folder)
        taken = disk.used + sum(_reserved(folder, but=_file(folder, job))) + estimate["space_needed"]
        percent = 100 * taken / (disk.used + disk.free)
        if percent > threshold:
            raise NotNow(
                f"the working storage would be {percent:.1f} % full, with {estimate['space_needed']:,} bytes for this job; the limit is {threshold} %",
                storage.get("retry_after", 30),
            )
        write(_file(folder, job), json.dumps({"bytes": estimate["space_needed"], "folder": str(job.folder)}).encode())
    output(working_directory=job.folder)
    print(f"{job.key}: the working storage will be {percent:.1f} % full; the limit is {threshold} %")


@contextmanager
def _reservations(storage: dict[str, Any]) -> Iterator[Path]:
    folder = Path(storage["reservations"])
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _reserved(folder: Path, but: Path) -> Iterator[int]:
    """What other jobs have reserved. ``but``: the job's own, from an attempt that was killed."""
    for path in set(folder.glob("*.json")) - {but}:
        reserved = json.loads(path.read_text("utf-8"))
        if Path(reserved["folder"]).is_dir():
            yield reserved["bytes"]
        else:
            path.unlink()  # the job is completed or deleted


def _file(folder: Path, job: Job) -> Path:
    return folder / f"{hashlib.sha256(str(job.folder).encode()).hexdigest()[:32]}.json"


def release(job: Job) -> None:
    """What was reserved is on the disk now."""
    with _reservations(settings()["working_storage"]) as folder:
        _file(folder, job).unlink(missing_ok=True)


if __name__ == "__main__":
    end(main)
