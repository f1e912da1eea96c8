"""The state *processing* of a batch: examine the payload, and hand its objects in as jobs; all of them or none.

In the run of the jobs, where there is nothing left to examine, it tells the depositor that they are queued, if the profile says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

from job import Failed, Rejected, digest, end, one_line, opened, output, pieces, profile, settings
from manifest import FIRST, check_entry, check_files, parse

BOM = b"\xef\xbb\xbf"
LONGEST = 64 << 20
"""Bytes of a manifest."""
LONGEST_ID = 150
GREAT = ((1000, 30), (100, 20), (10, 10))
"""How much later the jobs of a batch are that has more than so many."""
COMMON = ("profile_name", "submitter", "submission_mode", "response_type")
OF_OBJECT = ("local_id", "ark", "erc_who", "erc_what", "erc_when", "erc_where")
OF_PAYLOAD = ("digest_type", "digest_value")
OF_FILE = ("url", "name", "size", *OF_PAYLOAD)
KINDS = {"ManifestOfFiles": "file", "ManifestOfContainers": "container", "ManifestOfManifests": "manifest"}


def main() -> None:
    batch = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    if batch["items"]:
        _confirm(batch)
        return
    batch_id = (
        os.environ["ARKQUEUE_SUBMISSION_ID"] or f"bid-{os.environ['ARKQUEUE_NUMBER']}.{os.environ['ARKQUEUE_RUN']}"
    )
    if len(batch_id) > LONGEST_ID:
        raise Rejected(f"the id of the batch has more than {LONGEST_ID} characters")
    kind, jobs = _examine(batch)
    later = next((more for most, more in GREAT if len(jobs) > most), 0)
    priority = min(profile(batch["profile_name"]).get("priority", 50) + later, 900)
    common = {"batch_id": batch_id, "payload_version": 1, "priority": priority, "submission_mode": "add"}
    common |= {name: batch[name] for name in COMMON if name in batch}
    # No other batch of the collection has these: a job may be retried although a later batch has gone on.
    items = [{"job_id": f"{batch_id}.{n:04}"} | common | job for n, job in enumerate(jobs, 1)]
    output(batch_id=batch_id, manifest_type=kind, jobs=len(items))
    document = {name: batch[name] for name in COMMON if name in batch} | {"manifest_type": kind, "batch_id": batch_id}
    run = _submit({**document, "items": items}, f"{batch_id}-jobs")
    output(jobs_run=run)
    print(f"{batch_id}: {kind}, {len(items)} job{'s' * (len(items) != 1)} of priority {priority}: {run}")


def _confirm(batch: dict[str, Any]) -> None:
    """Tell the depositor that the batch is queued."""
    if not profile(batch["profile_name"]).get("confirm"):
        print("the profile wants no summary of what is queued")
        return
    from report import send

    titles = [
        f"  {job['job_id']}  {job.get('local_id', '')}  {one_line(job.get('erc_what', ''))}".rstrip()
        for job in batch["items"]
    ]
    send(
        batch["submitter"],
        f"Batch {batch['batch_id']} is queued: {len(titles)} object{'s' * (len(titles) != 1)}",
        f"Your submission to {batch['profile_name']} was received, and its objects are queued:\n\n"
        + "\n".join(titles[:1000])
        + "\n",
        f"queued.{batch['batch_id']}",
    )


# -- the payload ---------------------------------------------------------------------------------------------------


def _examine(batch: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """What the payload is, and a job for each object in it."""
    url = batch.get("payload_url") or "attachment:" + urllib.parse.quote(batch["payload_filename"])
    start = _check(url, batch)
    kind = batch.get("manifest_type") or _kind(batch, start, url)
    own = {name: batch[name] for name in (*OF_OBJECT, *OF_PAYLOAD) if name in batch}
    if kind in ("SingleFile", "Container"):
        return kind, [own | {"payload_url": url, "payload_type": "file" if kind == "SingleFile" else "container"}]
    if len(start) > LONGEST:
        raise Rejected(f"{url}: the manifest has more than {LONGEST >> 20} MiB")
    if kind == "ManifestOfJobs":
        return kind, jobs_of(start, url)
    manifest = parse(start, url)
    if manifest.kind != kind:
        raise Rejected(f"{url}: is no {kind}: its profile is that of {manifest.kind}")
    if kind == "ObjectManifest":
        return kind, [own | {"payload_url": url, "payload_type": "manifest"}]
    return kind, [_line(line, KINDS[kind]) for line in manifest.lines]


def _check(url: str, batch: dict[str, Any]) -> bytes:
    """Read the payload for its digest, if the depositor gave one; its beginning, which is all of a manifest."""
    start = b""
    wanted = digest(batch["digest_type"]) if "digest_type" in batch else None
    with opened(url) as file:
        for piece in pieces(file):
            if len(start) <= LONGEST:
                start += piece
            if wanted is None:
                if not start.removeprefix(BOM).lstrip().startswith((FIRST, b"{")) or len(start) > LONGEST:
                    break  # a file of its own, which nobody needs to see twice
            else:
                wanted.update(piece)
    if wanted is not None and wanted.hexdigest() != batch["digest_value"].lower():
        raise Rejected(
            f"{url}: its {batch['digest_type']} is {wanted.hexdigest()}, and the depositor gave {batch['digest_value']}"
        )
    return start


def _kind(batch: dict[str, Any], start: bytes, url: str) -> str:
    if batch.get("type") == "container":
        return "Container"
    if start.removeprefix(BOM).startswith(FIRST):
        return parse(start, url).kind
    return "SingleFile"


def _line(line: dict[str, Any], kind: str) -> dict[str, Any]:
    taken = (*OF_OBJECT, *OF_PAYLOAD)
    return {name: line[name] for name in taken if name in line} | {"payload_url": line["url"], "payload_type": kind}


def jobs_of(data: bytes, url: str) -> list[dict[str, Any]]:
    """A manifest of jobs: JSON, a mapping for each object, with its files or the URL of its payload."""
    try:
        jobs = json.loads(data)["jobs"]
        if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
            raise ValueError("it names no job")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Rejected(f'{url}: is not a manifest of jobs, {{"jobs": [{{…}}]}}: {error!r}') from None
    return [_job(job, f"{url}, job {number}") for number, job in enumerate(jobs, 1)]


def _job(job: dict[str, Any], where: str) -> dict[str, Any]:
    if unknown := sorted(job.keys() - {*OF_OBJECT, *OF_PAYLOAD, "files", "payload_url", "payload_type"}):
        raise Rejected(f"{where}: has the unknown field {unknown[0]}")
    one = {name: job[name] for name in (*OF_OBJECT, *OF_PAYLOAD) if name in job}
    if "files" not in job:
        kind = job.get("payload_type", "manifest")
        if kind not in KINDS.values():
            raise Rejected(f"{where}: payload_type is none of {', '.join(KINDS.values())}")
        check_entry(one | ({"url": job["payload_url"]} if "payload_url" in job else {}), where)
        return one | {"payload_url": job["payload_url"], "payload_type": kind}
    files = job["files"]
    if not isinstance(files, list) or not files or not all(isinstance(file, dict) for file in files):
        raise Rejected(f"{where}: files is not a list of mappings")
    for file in files:
        if unknown := sorted(file.keys() - {*OF_FILE}):
            raise Rejected(f"{where}: a file has the unknown field {unknown[0]}")
        check_entry(file, where)
    check_entry(one | {"url": files[0]["url"]}, where)
    check_files(files, where)
    return one | {"payload_type": "files", "files": files}


# -- the jobs --------------------------------------------------------------------------------------------------------


def _submit(document: dict[str, Any], id: str) -> str:
    """Hand the jobs in. The same id with the same jobs makes no second run, so that an attempt that was killed does no harm."""
    known = settings()
    token = Path(known["token_file"]).read_text("ascii").strip()
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(document, file)
        file.flush()
        words = [*known["arkqueue"], "submit", os.environ["ARKQUEUE_ARCHIVE"], file.name, "--id", id]
        words += ["--revision", os.environ["ARKQUEUE_REVISION"]]
        if attachments := os.environ.get("ARKQUEUE_ATTACHMENTS"):
            words += ["--attach", *sorted(str(path) for path in Path(attachments).iterdir())]
        server = Path(known["url_file"]).read_text("ascii").strip()
        env = {**os.environ, "ARKQUEUE_TOKEN": token, "ARKQUEUE_SERVER": server}
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        raise Rejected(done.stderr)
    if done.returncode:
        raise Failed(done.stderr)
    return done.stdout.strip()


if __name__ == "__main__":
    end(main)
