"""The state *pending* of a job: what the object's files are. A corrupt manifest, or one with another digest than the depositor gave, is rejected for good."""

from __future__ import annotations

import urllib.parse

from job import Job, Rejected, digest, end, opened, output, pieces
from manifest import check_files, parse

LONGEST = 256 << 20


def main() -> None:
    job = Job()
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
