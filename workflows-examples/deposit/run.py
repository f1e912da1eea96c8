"""Deposit a submission in several repositories at once: a share, a host over SFTP, a repository with reviewers.

Everything is real and is left behind to look around in: an archive with the workflow, a repository like DSpace that can be told to refuse, an SSH server, a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from common import Example, example, main, need
from deposit import parts, statuses

from arkqueue.cli import trial
from arkqueue.cli.output import bold, dim, say

ARCHIVE = "deposits"


def run(arguments: argparse.Namespace) -> None:
    need("ssh-keygen")
    with example("deposit", arguments) as arkqueue, a_repository(arkqueue.folder) as repository, ExitStack() as stack:
        sshd = parts.Sshd(arkqueue.folder / "sshd") if parts.Sshd.program() else None
        if sshd is None:
            say(dim("The SFTP target is left out: sshd is not installed (Debian: apt-get install openssh-server)."))
        else:
            stack.enter_context(closing(sshd))
            sshd.start()
        targets = set_up(arkqueue, repository, sshd, is_git=arguments.git)
        names = sorted(targets)
        others = dict.fromkeys(set(names) - {"theses"}, "ACCEPTED")

        say(f"\n{bold('A submission with two files goes to')} {', '.join(names)}, each in its own way.")
        repository.faults(workflow={"refuse": 422, "message": "dc.rights is required in this collection."})
        submit(arkqueue, "s-1", names)
        until(arkqueue, "s-1", "IN_PROGRESS", **others, theses="FAILED")

        say(
            f"\n{bold('The repository refused it')}, and its message is shown; that stopped no other target. What it wanted is given, and the deposit is retried."
        )
        repository.faults()
        arkqueue("retry", f"{ARCHIVE}@id:s-1/*/s-1.theses")
        until(arkqueue, "s-1", "IN_PROGRESS", **others, theses="SUBMITTED")

        say(
            f"\n{bold('A reviewer has accepted it')} at last, after however long. The poll would ask within the hour; now somebody wants to know."
        )
        repository.review("s-1.zip", "archived")
        arkqueue("refresh", f"{ARCHIVE}@id:s-1")
        until(arkqueue, "s-1", "ACCEPTED", **others, theses="ACCEPTED")

        say(f"\n{bold('A submission without files')} fails, and makes no deposit.")
        submit(arkqueue, "s-2", names, files=False)
        until(arkqueue, "s-2", "FAILED")

        say(f"\n{bold('The repository is down')}: the deposit waits for it, and the others go on.")
        repository.stop()
        submit(arkqueue, "s-3", names)
        until(arkqueue, "s-3", "IN_PROGRESS", **others, theses="UNREACHABLE")
        repository.start()
        arkqueue("retry", f"{ARCHIVE}@id:s-3/send/s-3.theses")
        until(arkqueue, "s-3", "IN_PROGRESS", **others, theses="SUBMITTED")
        repository.review("s-3.zip", "withdrawn", "We take theses of this university only.")
        arkqueue("refresh", ARCHIVE)
        until(arkqueue, "s-3", "IN_PROGRESS", **others, theses="REJECTED")

        if trial.is_at_a_terminal():
            say(f"\nThe repository, with what its reviewer and its faults can do: {repository.url}/admin")
        else:
            say("\nThe repository and the SSH server can be started again, too:")
            for part in filter(None, (repository, sshd)):
                say(f"\n  {shlex.join(part.command())}")
        arkqueue.stay(
            (f"show {ARCHIVE}@id:s-1 --items", "every step at every target"),
            (f"logs {ARCHIVE}@id:s-3/outcome/s-3.theses", "what the repository said"),
            (f"show {ARCHIVE}@id:s-1/send/s-1.theses", "all attempts to send one deposit"),
        )


@contextmanager
def a_repository(folder: Path) -> Iterator[parts.Repository]:
    with closing(parts.Repository(folder / "repository")) as repository:
        repository.start()
        yield repository


def set_up(
    arkqueue: Example, repository: parts.Repository, sshd: parts.Sshd | None, *, is_git: bool
) -> dict[str, dict[str, Any]]:
    """The archive with the workflow, the targets and their credentials; the targets."""
    vault = arkqueue.folder / "vault"
    vault.mkdir()
    targets = {"vault": parts.folder_target(vault), "theses": parts.rest_target(repository)}
    if sshd is not None:
        targets["mirror"] = parts.sftp_target(sshd)
    credentials = parts.credentials(arkqueue.folder / "credentials", repository=repository, sshd=sshd)
    archive = arkqueue.repository(ARCHIVE, is_git=is_git)
    for name, text in parts.archive_files(targets, credentials=credentials).items():
        file = archive.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    archive.commit("Deposit submissions in three repositories")
    arkqueue.add(ARCHIVE, archive)
    arkqueue("archive", "set", ARCHIVE, "max_running", "4")
    files = arkqueue.folder / "files"
    files.mkdir()
    (files / "thesis.txt").write_text("On the bones of Etruria\n" * 1000)
    (files / "finds.csv").write_text("bone,found at\nfemur,Cerveteri\n")
    return targets


def submit(arkqueue: Example, id: str, names: list[str], *, files: bool = True) -> None:
    document = arkqueue.folder / f"{id}.json"
    document.write_text(json.dumps(parts.submission(id, names), indent=1))
    attached = ["--attach", arkqueue.folder / "files"] if files else []
    arkqueue("submit", ARCHIVE, document, "--id", id, *attached)


def until(arkqueue: Example, id: str, status: str, **deposits: str) -> None:
    """Wait until a submission and its deposits have these statuses, and show them; ``UNREACHABLE``: not sent, as nobody answers."""

    def status_of(deposit: statuses.Deposit) -> str:
        if deposit.status is None:
            return "UNREACHABLE" if "does not answer" in deposit.message else ""
        # It is sent a moment before it is asked about for the first time.
        is_asked = deposit.status != "SUBMITTED" or deposit.message.startswith("submitted")
        return deposit.status if is_asked else ""

    def came() -> bool:
        (found,) = statuses.submissions(api, ARCHIVE, [id])
        return found.status == status and {one.target: status_of(one) for one in found.deposits} == deposits

    with statuses.connect(arkqueue.home) as api:
        trial.wait(came, f"{status} of {id}")
    show(arkqueue, id)


def show(arkqueue: Example, id: str) -> None:
    program = f"{os.path.relpath(sys.executable)} {os.path.relpath(parts.HERE / 'statuses.py')}"
    say(f"\n{dim('$')} {bold(f'{program} {ARCHIVE} {id}')}")
    with statuses.connect(arkqueue.home) as api:
        say(statuses.table(list(statuses.submissions(api, ARCHIVE, [id]))))


if __name__ == "__main__":
    main(run, __doc__)
