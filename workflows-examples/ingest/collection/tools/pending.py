"""The state *pending* of a job: what the object's files are. A corrupt manifest, or one with another digest than the depositor gave, is rejected for good."""

from __future__ import annotations

import os
import urllib.parse
from typing import Any

from job import Job, Rejected, digest, end, opened, output, pieces
from manifest import check_entry, check_files, parse

LONGEST = 256 << 20
OF_ENTRY = ("ark", "local_id", "digest_type", "digest_value", "url", "name", "size")
ONE_OF = {
    "payload_type": ("file", "container", "manifest", "files"),
    "submission_mode": ("add", "update"),
    "response_type": ("XML", "JSON", "turtle", None),
}


def main() -> None:
    job = Job()
    check(job.item)
    output(**{"arkqueue.priority": job.priority})
    if job.payload_type == "files":
        files = job.files
    elif job.payload_type == "manifest":
        files = parse(_manifest(job), job.payload_url).lines
        check_files(files, job.payload_url)
    else:
        name = urllib.parse.unquote(job.payload_url.partition("?")[0].rpartition("/")[2].rpartition(":")[2])
        files = [{"url": job.payload_url, "name": name or "payload"}]
        files[0] |= {key: job.item[key] for key in ("digest_type", "digest_value") if job.item.get(key)}
        check_files(files, job.payload_url)
    job.write("files.json", files)
    print(f"{job.key}: {len(files)} file{'s' * (len(files) != 1)}")


def check(item: dict[str, Any]) -> None:
    """See that a job is one that a batch makes: whoever may hand a batch in could hand in jobs that he wrote himself."""
    where = str(item["job_id"])
    batch = os.environ["ARKQUEUE_SUBMISSION_ID"].removesuffix("-jobs")
    if item.get("batch_id") != batch or not where.startswith(f"{batch}."):
        raise Rejected(f"{where}: is not a job of the batch {batch}. Hand a payload in, and no items")
    for field, known in ONE_OF.items():
        if item.get(field) not in known:
            raise Rejected(f"{where}: {field} is none of {', '.join(filter(None, known))}")
    if type(item.get("priority")) is not int or not 0 <= item["priority"] <= 1000:
        raise Rejected(f"{where}: priority is not a number from 0 to 1000")
    own = {name: item[name] for name in OF_ENTRY if name in item}
    if item["payload_type"] != "files":
        check_entry(own | ({"url": item["payload_url"]} if "payload_url" in item else {}), where)
        return
    files = item.get("files")
    if not isinstance(files, list) or not files or not all(isinstance(file, dict) for file in files):
        raise Rejected(f"{where}: files is not a list of mappings")
    for file in files:
        check_entry(file, where)
    check_entry(own | {"url": files[0]["url"]}, where)
    check_files(files, where)


def _manifest(job: Job) -> bytes:
    data = b""
    with opened(job.payload_url) as file:
        for piece in pieces(file):
            data += piece
            if len(data) > LONGEST:
                raise Rejected(f"{job.payload_url}: the manifest has more than {LONGEST >> 20} MiB")
    if job.digest_type:
        wanted = digest(job.digest_type)
        wanted.update(data)
        if wanted.hexdigest() != job.digest_value.lower():
            raise Rejected(
                f"{job.payload_url}: its {job.digest_type} is {wanted.hexdigest()}, and the depositor gave {job.digest_value}"
            )
    return data


if __name__ == "__main__":
    end(main)
