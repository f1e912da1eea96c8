"""Merritt's ingest on a server of its own: an archive for a collection, the services beside it, and a few batches.

See the README of this folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from common import SETTLED, Example, example, main
from ingest import host

from arkqueue.cli import trial
from arkqueue.cli.output import bold, say
from arkqueue.db.embedded.server import Embedded

ARCHIVE, ACCESS = "demo", "access"
SUBMITTER = "ann@example.org"


def run(arguments: argparse.Namespace) -> None:
    with (
        example("ingest", arguments) as arkqueue,
        host.services(arkqueue.home / "services", Embedded(arkqueue.home).uri) as services,
    ):
        _set_up(arkqueue, services, is_git=arguments.git)
        _single_file(arkqueue)
        _object(arkqueue, services)
        _many_objects(arkqueue, services)
        _held(arkqueue, services)
        _rejected(arkqueue, services)
        _access(arkqueue)
        say(f"\n{bold('The mails of the depositor')}, in {services.folder}/mail\n")
        for mail in services.mails:
            say("  " + next(line for line in mail.read_text("utf-8").splitlines() if line.startswith("Subject: ")))
        say("\nThe services go on as long as the server; they start again, at the same addresses, with\n")
        program = os.path.relpath(host.HERE / "services.py")
        say(f"  {os.path.relpath(sys.executable)} {program} {services.folder} --home {arkqueue.home}")
        say("\nSwitch a fault of a service on, and hand a batch in (`{}` switches it off):\n")
        say(f"  curl -X PUT {services.urls['storage']}/faults -d '{{\"full\": true}}'")
        arkqueue.stay(
            (f"runs {ARCHIVE}", "the batches"),
            (f"show {ARCHIVE}@id:bid-books-jobs --items", "the jobs of one"),
            (f"report {ARCHIVE}@id:bid-books-jobs", "what its depositor was told last"),
            (f"submit {ARCHIVE} {arkqueue.home}/bid-object.json --id bid-again", "hand a batch in"),
        )


def _set_up(arkqueue: Example, services: host.Services, *, is_git: bool) -> None:
    """An archive for the collection, and one for the access queue; the services' addresses are settings of this host."""
    settings = arkqueue.home / "ingest.json"
    for name, files in ((ARCHIVE, host.collection_files(settings)), (ACCESS, host.access_files(settings))):
        repository = arkqueue.repository(name, is_git=is_git)
        host.write(repository.work, files)
        repository.commit("The workflow and its programs")
        arkqueue.add(name, repository)
    new = {"name": "ingest", "scope": "operate", "archives": [ARCHIVE, ACCESS]}
    token = arkqueue.client.post("/tokens", new)["token"]
    host.write_settings(settings, services, arkqueue.home, token, large="100KiB")
    arkqueue("lock", "set", "global/ingest", "unlimited")
    arkqueue("lock", "set", f"{ACCESS}/accessSmall", "4")
    say("\nBeside it run content, minting, storage, inventory, callback and mail:\n")
    for name, url in services.urls.items():
        say(f"  {name:12} {url}")


def _single_file(arkqueue: Example) -> None:
    say(f"\n{bold('A single file, handed in with its digest')}")
    scan = arkqueue.home / "scan.tif"
    scan.write_bytes(b"II*\0" + bytes(range(256)) * 64)
    digest = hashlib.sha256(scan.read_bytes()).hexdigest()
    about = {"local_id": "loc001", "erc_what": "A scan", "erc_who": "Ann"}
    _submit(
        arkqueue,
        "bid-file",
        {"payload_filename": "scan.tif", "digest_type": "sha-256", "digest_value": digest, **about},
        scan,
    )
    _ended(arkqueue, "bid-file")
    arkqueue("show", f"{ARCHIVE}@id:bid-file-jobs")


def _object(arkqueue: Example, services: host.Services) -> None:
    say(f"\n{bold('An object manifest: one object of three files on the server of the depositor')}")
    lines = [_line(services, f"maps/{n}.txt", f"map {n}\n" * 1000 * n) for n in range(1, 4)]
    manifest = services.content("maps.checkm", host.checkm("mrt-ingest-manifest", lines))
    about = {"local_id": "loc002", "erc_what": "Three maps", "response_type": "turtle"}
    _submit(arkqueue, "bid-object", {"payload_url": manifest, **about})
    _ended(arkqueue, "bid-object")
    arkqueue("show", f"{ARCHIVE}@id:bid-object-jobs/*/bid-object.0001")
    say(f"\n{bold('The callback, as the depositor wants it')}\n")
    say(services.callbacks[-1].read_text("utf-8"))


def _many_objects(arkqueue: Example, services: host.Services) -> None:
    say(f"\n{bold('A manifest of manifests: three objects, of which one cannot be downloaded')}")
    objects = []
    for number in range(1, 4):
        line = _line(services, f"books/{number}.txt", f"book {number}\n" * 500)
        manifest = services.content(f"books/{number}.checkm", host.checkm("mrt-ingest-manifest", [line]))
        objects.append({"url": manifest, "local_id": f"book{number}", "erc_what": f"Book {number}"})
    gone = services.folder / "content" / "books" / "2.txt"
    text = gone.read_text("utf-8")
    gone.unlink()
    payload = services.content("books.checkm", host.checkm("mrt-batch-manifest", objects))
    _submit(arkqueue, "bid-books", {"payload_url": payload})
    _ended(arkqueue, "bid-books")
    arkqueue("explain", f"{ARCHIVE}@id:bid-books-jobs/downloading/bid-books.0002")
    say(
        "\nThe depositor puts the file back. The job is resumed where it failed, and the depositor gets a further report:"
    )
    gone.write_text(text, "utf-8")
    arkqueue("retry", f"{ARCHIVE}@id:bid-books-jobs", "--failed")
    _ended(arkqueue, "bid-books", "completed")
    arkqueue("report", f"{ARCHIVE}@id:bid-books-jobs", "--update")
    _mailed(services, "bid-books update")


def _held(arkqueue: Example, services: host.Services) -> None:
    say(f"\n{bold('A collection on hold')}")
    arkqueue("hold", ARCHIVE, "--reason", "the rights are being cleared")
    _submit(arkqueue, "bid-held", {"payload_url": services.content("held.txt", "held back"), "type": "file"})
    arkqueue("runs", ARCHIVE, "--state", "held")
    arkqueue("unhold", ARCHIVE)
    arkqueue("release", f"{ARCHIVE}@id:bid-held")
    _ended(arkqueue, "bid-held", "completed")


def _rejected(arkqueue: Example, services: host.Services) -> None:
    say(f"\n{bold('A manifest that was cut off is rejected, and no job of it is made')}")
    text = host.checkm("mrt-ingest-manifest", [_line(services, "cut.txt", "cut")]).replace("#%eof\n", "")
    _submit(arkqueue, "bid-cut", {"payload_url": services.content("cut.checkm", text)})
    _ended(arkqueue, "bid-cut")
    arkqueue("logs", f"{ARCHIVE}@id:bid-cut/batch")


def _access(arkqueue: Example) -> None:
    say(f"\n{bold('The access queue: a reader asks for an object, and finds it at a URL')}")
    found = arkqueue.client.get(f"/runs/{_ended(arkqueue, 'bid-object')['id']}/reports/1")
    ark = next(task["outputs"]["ark"] for task in found["tasks"] if task["name"] == "mint")
    request = arkqueue.home / "request.json"
    request.write_text(json.dumps({"items": [{"token": "token-0001", "ark": ark, "delivery-node": 7}]}), "utf-8")
    arkqueue("submit", ACCESS, request, "--id", "token-0001")
    arkqueue.settled(f"{ACCESS}@1.2")
    arkqueue("show", f"{ACCESS}@id:token-0001/assemble/token-0001")


def _line(services: host.Services, name: str, text: str) -> dict[str, Any]:
    """A line of a manifest, for a file that is put on the depositor's server."""
    data = text.encode()
    digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return {
        "url": services.content(name, data),
        "digest_type": "md5",
        "digest_value": digest,
        "size": len(data),
        "name": name.rpartition("/")[2],
    }


def _submit(arkqueue: Example, batch: str, document: dict[str, Any], *attach: Path) -> None:
    file = arkqueue.home / f"{batch}.json"
    file.write_text(
        json.dumps({"profile_name": "demo_content", "submitter": SUBMITTER, **document, "items": []}, indent=1), "utf-8"
    )
    arkqueue("submit", ARCHIVE, file, "--id", batch, *(word for path in attach for word in ("--attach", path)))


def _ended(arkqueue: Example, batch: str, *states: str) -> dict[str, Any]:
    """Wait until the run of a batch's jobs is over, in one of some states; if the batch was not made, until its own run is."""

    def ended() -> dict[str, Any] | None:
        runs = {run["submission"]: run for run in arkqueue.client.get("/runs", archive=ARCHIVE, limit=100)["runs"]}
        made = runs.get(f"{ARCHIVE}@id:{batch}")
        run = runs.get(f"{ARCHIVE}@id:{batch}-jobs") or (made if made and made["state"] == "failed" else None)
        return run if run and run["state"] in (states or SETTLED) and run["report"] == "completed" else None

    found: dict[str, Any] = trial.wait(ended, f"the end of {batch}", 300)
    return found


def _mailed(services: host.Services, subject: str) -> None:
    """Wait for a mail."""
    trial.wait(
        lambda: any(f"Subject: Batch {subject}" in mail.read_text("utf-8") for mail in services.mails), subject, 60
    )


if __name__ == "__main__":
    main(run, __doc__)
