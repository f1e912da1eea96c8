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

ARCHIVE = "demo"
SUBMITTER = "ann@example.org"


def run(arguments: argparse.Namespace) -> None:
    with (
        example("ingest", arguments) as arkqueue,
        host.services(arkqueue.home / "services", Embedded(arkqueue.home).uri) as services,
    ):
        _set_up(arkqueue, services, is_git=arguments.git)
        _single_file(arkqueue)
        _object(arkqueue, services)
        say(f"\n{bold('The mails of the depositor')}, in {services.folder}/mail\n")
        for mail in services.mails:
            say("  " + next(line for line in mail.read_text("utf-8").splitlines() if line.startswith("Subject: ")))
        say("\nThe services start again, at the same addresses, with\n")
        say(
            f"  {os.path.relpath(sys.executable)} {os.path.relpath(host.HERE / 'services.py')} {services.folder} --home {arkqueue.home}"
        )
        arkqueue.stay(
            (f"runs {ARCHIVE}", "the batches"), (f"report {ARCHIVE}@id:bid-object-jobs", "what the depositor was told")
        )


def _set_up(arkqueue: Example, services: host.Services, *, is_git: bool) -> None:
    settings = arkqueue.home / "ingest.json"
    repository = arkqueue.repository(ARCHIVE, is_git=is_git)
    host.write_archive(repository.work, "archive", settings)
    repository.commit("The workflow and the profiles of a collection")
    arkqueue.add(ARCHIVE, repository)
    token = arkqueue.client.post("/tokens", {"name": "ingest", "scope": "operate", "archives": [ARCHIVE]})["token"]
    host.write_settings(settings, services.urls, arkqueue.home, token)
    arkqueue("lock", "set", "global/ingest", "unlimited")
    say("Beside it run content, minting, storage, inventory, callback and mail:")
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
    arkqueue("show", f"{ARCHIVE}@id:bid-object-jobs/*/jid0001")
    say(f"\n{bold('The callback, as the depositor wants it')}\n")
    say(services.callbacks[-1].read_text("utf-8"))


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


def _ended(arkqueue: Example, batch: str) -> dict[str, Any]:
    """Wait until the run of a batch's jobs is over; if the batch was not made, until its own run is."""

    def ended() -> dict[str, Any] | None:
        runs = {run["submission"]: run for run in arkqueue.client.get("/runs", archive=ARCHIVE, limit=100)["runs"]}
        made = runs.get(f"{ARCHIVE}@id:{batch}")
        run = runs.get(f"{ARCHIVE}@id:{batch}-jobs") or (made if made and made["state"] == "failed" else None)
        return run if run and run["state"] in SETTLED and run["report"] == "completed" else None

    found: dict[str, Any] = trial.wait(ended, f"the end of {batch}", 300)
    return found


if __name__ == "__main__":
    main(run, __doc__)
