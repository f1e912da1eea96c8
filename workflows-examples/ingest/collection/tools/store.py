"""The second half of the state *processing* of a job: metadata, the storage manifest, and the hand-over to storage.

Storage keeps one version for a job, however often it is asked.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml
from typing import Any

from downloading import described
from job import Failed, Job, ask, end, inputs, output, service, write
from manifest import of_storage

DC = "http://purl.org/dc/elements/1.1/"


def main() -> None:
    job = Job()
    minted = inputs()["mint"]
    ark, local_id = minted["ark"], minted.get("local_id")
    content = job.read("content.json")
    for file in content:
        path = job.producer / file["name"]
        if not path.is_file() or described(path, job.producer) != file:
            raise Failed(f"{file['name']}: has changed in the working folder since it was downloaded")
    write(job.system / "mrt-erc.txt", _erc(job, ark, local_id).encode())
    write(job.system / "mrt-dc.xml", _dublin_core(job, ark, local_id))
    files = [
        file | {"url": (job.producer / file["name"]).as_uri(), "name": f"producer/{file['name']}"} for file in content
    ]
    for path in sorted(job.system.glob("mrt-*")):
        files.append(described(path, job.system) | {"url": path.as_uri(), "name": f"system/{path.name}"})
    manifest = of_storage(files)
    write(job.folder / "storage-manifest.checkm", manifest.encode())
    storage = service("storage")
    worker = ask("GET", f"{storage}/worker")
    if worker is None:
        raise Failed("storage: has no worker for this request")
    body = {"job": job.key, "submission_mode": job.submission_mode, "manifest": manifest}
    stored: dict[str, Any] = ask("POST", f"{worker['url']}/add/{job.profile['node']}/{ark}", body)
    if stored.get("status") != "stored":
        raise Failed(f"storage: answered {stored}")
    kept = ("version", "manifest_url", "cloud-content-byte")
    output(**{name: stored[name] for name in kept})
    print(f"{job.key}: version {stored['version']} of {ark}, {len(files)} files")


def _erc(job: Job, ark: str, local_id: str | None) -> str:
    who, what, when = (getattr(job, f"erc_{word}") or "(:unas)" for word in ("who", "what", "when"))
    where = "".join(f"where: {place}\n" for place in (ark, local_id, job.erc_where) if place)
    return f"erc:\nwho: {who}\nwhat: {what}\nwhen: {when}\n{where}"


def _dublin_core(job: Job, ark: str, local_id: str | None) -> bytes:
    xml.register_namespace("dc", DC)
    root = xml.Element("DublinCore")
    for name, value in (
        ("creator", job.erc_who), ("title", job.erc_what), ("date", job.erc_when), ("identifier", ark), ("identifier", local_id)
    ):  # fmt: skip
        if value:
            xml.SubElement(root, f"{{{DC}}}{name}").text = value
    return xml.tostring(root, "utf-8", xml_declaration=True)


if __name__ == "__main__":
    end(main)
