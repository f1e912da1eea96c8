"""The state *estimating* of a job: how much space it needs, asked with HEAD requests. It never fails: what is not known is 0, and goes behind the others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from job import Failed, Job, Rejected, end, opened, output, size
from manifest import LONGEST_SIZE

AT_ONCE = 8
BUDGET = 60.0
"""Seconds for all requests of a job."""
LATER = 20
"""How much later a job is that is large, or whose size is not known."""


def main() -> None:
    job = Job()
    files = job.read("files.json")
    pool = ThreadPoolExecutor(AT_ONCE)
    asked = [pool.submit(_size, file["url"]) for file in files]
    done, _ = wait(asked, BUDGET)
    pool.shutdown(wait=False, cancel_futures=True)
    sizes = [future.result() if future in done else None for future in asked]
    sizes = [file.get("size") if found is None else found for file, found in zip(files, sizes, strict=True)]
    is_known = None not in sizes
    needed = sum(sizes) if is_known else 0
    job.write("estimate.json", {"space_needed": needed, "is_known": is_known})
    output(space_needed=needed, **{"arkqueue.priority": priority(job, needed if is_known else None)})
    print(
        f"{job.key}: {needed:,} bytes" if is_known else f"{job.key}: the size of {sizes.count(None)} files is not known"
    )


def _size(url: str) -> int | None:
    try:
        with opened(url, "HEAD") as answer:
            return announced_size(answer)
    except (Failed, Rejected, OSError):
        return None


def announced_size(answer: Any) -> int | None:
    """The size that a server announces; None: it says none, or nonsense, such as a negative one."""
    said = str(answer.headers.get("Content-Length", ""))
    return int(said) if said.isascii() and said.isdecimal() and len(said) <= LONGEST_SIZE else None


def priority(job: Job, needed: int | None) -> int:
    """The priority of a job by what it needs; None: that is not known."""
    is_large = needed is None or needed > size(job.profile.get("large", "1GiB"))
    return min(job.priority + (LATER if is_large else 0), 1000)


if __name__ == "__main__":
    end(main)
