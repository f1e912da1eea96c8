"""The application `workflows-examples/deposit`: submissions to several repositories, with
everything real (its README says what it does).
"""

from __future__ import annotations

import hashlib
import json
import random
import socket
import subprocess
import sys
import threading
import uuid
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import bagit
import pytest
from deposit import parts, statuses

from arkqueue.db.embedded.server import Embedded
from tests.loaded import write_python
from tests.repositories import a_git_repository
from tests.soundness import destroy_sound
from tests.system.end_to_end.conftest import Installations
from tests.system.end_to_end.installation import ROOT, Archive, Installation, environment, processes_of
from tests.waiting import T, eventually, when_changed

MODULES = "bagit", "defusedxml.ElementTree", "httpx", "paramiko"
FILES = {"thesis.txt": b"On the bones of Etruria\n" * 1000, "finds/ä b.csv": b"bone,found at\n"}


class Deposits:
    """An archive with the workflow, and its targets."""

    def __init__(self, archive: Archive, folder: Path, repository: parts.Repository, sshd: parts.Sshd) -> None:
        self.archive, self.arkqueue, self.folder = archive, archive.installation, folder
        self.repository, self.sshd = repository, sshd
        self.vault = folder / "vault"
        self.vault.mkdir()
        self.targets = {
            "vault": parts.folder_target(self.vault),
            "theses": parts.rest_target(repository),
            "mirror": parts.sftp_target(sshd),
        }
        self.credentials = parts.credentials(folder / "credentials", repository=repository, sshd=sshd)
        self.files = folder / "files"
        for name, content in FILES.items():
            file = self.files / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def commit(self, **more: str) -> None:
        """Commits the workflow. Its programs start with their modules imported, which saves each a
        quarter of a second. The example itself starts them as a person does.
        """
        programs = self.folder / "bin"
        programs.mkdir(exist_ok=True)
        write_python(programs / "python3", *MODULES)
        files = parts.archive_files(self.targets, credentials=self.credentials, **more)
        (before, after) = f"PATH: {Path(sys.executable).parent}:", f"PATH: {programs}:"
        assert before in files[parts.WORKFLOW]
        files[parts.WORKFLOW] = files[parts.WORKFLOW].replace(before, after)
        self.archive.commit(files)

    def submit(self, *targets: str, id: str = "", files: bool = True, **more: Any) -> str:
        """Hand in a submission; its id, which no other test has in the repositories."""
        id = id or f"{self.archive.name}-{len(list(self.folder.glob('*.json')))}"
        document = self.folder / f"{id}.json"
        document.write_text(json.dumps(parts.submission(id, targets, **more)))
        attached = ["--attach", *self.files.iterdir()] if files else []
        self.arkqueue("submit", self.archive.name, document, "--id", id, *attached)
        return id

    def name(self, id: str, rest: str) -> str:
        """A task, such as ``send/TARGET``, or ``*/TARGET``, of a submission as the commands take it."""
        task, slash, target = rest.partition("/")
        return f"{self.archive.name}@id:{id}/{task}" + (f"{slash}{id}.{target}" if target else "")

    def task(self, id: str, rest: str) -> Any:
        """A task as ``arkqueue show --json`` tells it."""
        return self.arkqueue("show", self.name(id, rest), "--json").json

    def submission(self, id: str) -> statuses.Submission:
        with statuses.connect(self.arkqueue.home()) as api:
            (found,) = statuses.submissions(api, self.archive.name, [id])
        return found

    def deposit(self, id: str, target: str) -> statuses.Deposit | None:
        """A deposit; None where its submission has none yet."""
        return next((one for one in self.submission(id).deposits if one.target == target), None)

    def until(self, id: str, target: str, status: str | None, said: str = "") -> statuses.Deposit:
        """Wait until a deposit has a status, and says something; the deposit."""
        found: list[statuses.Deposit | None] = []

        def came() -> statuses.Deposit | None:
            found[:] = [one := self.deposit(id, target)]
            return one if one and one.status == status and said in one.message else None

        came_to = self.wait(came, lambda: found)
        assert came_to
        return came_to

    def wait(self, look: Callable[[], T], told: Callable[[], object] = str) -> T:
        """As ``eventually``, but the server is asked when something has ended."""
        return eventually(when_changed(look, lambda: self.arkqueue.changes(self.archive.name)), told)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[parts.Repository]:
    with closing(parts.Repository(tmp_path_factory.mktemp("repository"))) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[parts.Sshd]:
    if parts.Sshd.program() is None:
        pytest.skip("needs sshd (Debian: apt-get install openssh-server)")
    with closing(parts.Sshd(tmp_path_factory.mktemp("sshd"))) as made:
        made.start()
        yield made


def a_deposit_archive(arkqueue: Installation, repository: parts.Repository, sshd: parts.Sshd, folder: Path) -> Deposits:
    name = f"deposits-{uuid.uuid4().hex[:8]}"
    made = a_git_repository(folder, name)
    made.commit({"README": "Deposits\n"}, message="Begin")
    arkqueue("archive", "add", name, made.path, "--executor", "process")
    arkqueue("hook", "install", made.path)
    return Deposits(Archive(arkqueue, name, made), folder, repository, sshd)


@pytest.fixture
def deposits(
    shared: Installation, repository: parts.Repository, sshd: parts.Sshd, tmp_path: Path
) -> Iterator[Deposits]:
    yield a_deposit_archive(shared, repository, sshd, tmp_path)
    for part in (repository, sshd):
        part.start()
    repository.faults()


@pytest.mark.full
def test_each_target_gets_the_package_in_its_own_way_and_a_reviewer_accepts_it_later(deposits: Deposits) -> None:
    deposits.commit()
    id = deposits.submit("vault", "theses", "mirror")
    in_review = deposits.until(id, "theses", "SUBMITTED", "http://dspace.org/state/inreview")
    assert (in_review.copy, in_review.location) == (
        "IN_PROGRESS",
        f"{deposits.repository.url}/server/handle/{_item(deposits, id)['id']}",
    )
    for target in ("vault", "mirror"):
        accepted = deposits.until(id, target, "ACCEPTED")
        assert accepted.copy == "COMPLETE"
    assert deposits.submission(id).status == "IN_PROGRESS"

    _assert_is_a_bag(deposits.vault / f"{id}.zip", id, deposits.folder)
    item = _item(deposits, id)
    for package in (deposits.sshd.inbox / f"{id}.zip", deposits.repository.folder / "bitstreams" / item["bitstream"]):
        _assert_has_checksums(package)
    assert item["metadata"]["dc.title"] == ["On the bones of Etruria"]

    deposits.repository.review(f"{id}.zip", "archived")
    deposits.arkqueue("refresh", deposits.archive.name)
    accepted = deposits.until(id, "theses", "ACCEPTED", "The item has been archived.")
    assert (accepted.copy, accepted.location) == ("COMPLETE", in_review.location)
    assert deposits.submission(id).status == "ACCEPTED"
    assert len(deposits.repository.items(f"{id}.zip")) == 1


@pytest.mark.full
def test_a_submission_without_files_fails_and_makes_no_deposit(deposits: Deposits) -> None:
    deposits.commit()
    id = deposits.submit("vault", "theses", files=False)
    deposits.wait(lambda: deposits.submission(id).status == "FAILED")
    found = deposits.submission(id)
    assert found.message.startswith(f"submission {id} has no files, so there is nothing to deposit")
    assert found.deposits == []
    assert list(deposits.vault.iterdir()) == []
    assert deposits.repository.items(f"{id}.zip") == []

    program = [
        sys.executable,
        ROOT / "workflows-examples" / "deposit" / "statuses.py",
        "--home",
        deposits.arkqueue.home(),
    ]
    told = subprocess.run([*program, deposits.archive.name, id], capture_output=True, text=True, check=True)
    assert told.stdout.startswith(f"{id}  FAILED  submission {id} has no files")
    unknown = subprocess.run([*program, deposits.archive.name, "s-0"], capture_output=True, text=True, check=False)
    assert (unknown.returncode, unknown.stderr) == (
        1,
        f"statuses: there is no submission 's-0' in archive {deposits.archive.name}\n",
    )


@pytest.mark.full
def test_a_target_that_does_not_answer_is_waited_for_and_stops_no_other(deposits: Deposits) -> None:
    away = deposits.folder / "away"
    deposits.vault.rename(away)
    shelf = deposits.folder / "shelf"
    shelf.mkdir()
    deposits.sshd.stop()
    deposits.repository.stop()
    deposits.targets["shelf"] = parts.folder_target(shelf, assembler="zip")
    deposits.commit()
    id = deposits.submit("vault", "theses", "mirror", "shelf")
    deposits.until(id, "shelf", "ACCEPTED")
    for target, said in (("vault", "is not there"), ("theses", "does not answer"), ("mirror", "does not answer")):
        deposits.until(id, target, None, said)
        deposits.wait(lambda target=target: deposits.task(id, f"send/{target}")["state"] == "deferred")
    assert deposits.submission(id).status == "IN_PROGRESS"
    away.rename(deposits.vault)
    deposits.sshd.start()
    deposits.repository.start()
    for target in ("vault", "theses", "mirror"):
        deposits.arkqueue("retry", deposits.name(id, f"send/{target}"))
    deposits.until(id, "vault", "ACCEPTED")
    deposits.until(id, "mirror", "ACCEPTED")
    deposits.until(id, "theses", "SUBMITTED")


@pytest.mark.full
@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        ("login", 401, "theses answers 401: The account is locked."),
        ("create", 413, "theses answers 413: The quota of the collection is reached."),
        ("metadata", 422, "theses answers 422: dc.title is too long."),
        ("workflow", 403, "theses answers 403: You must accept the license."),
    ],
)
def test_any_other_refusal_fails_the_deposit_with_the_repositorys_own_message(
    deposits: Deposits, step: str, status: int, said: str
) -> None:
    deposits.commit()
    deposits.repository.faults(**{step: {"refuse": status, "message": said.partition(": ")[2]}})
    id = deposits.submit("theses", "vault")
    failed = deposits.until(id, "theses", "FAILED")
    assert (failed.message, failed.copy) == (said, None)
    deposits.until(id, "vault", "ACCEPTED")
    assert said in deposits.arkqueue("show", deposits.name(id, "send/theses")).out
    assert said in deposits.arkqueue("logs", deposits.name(id, "send/theses")).out
    assert [item["state"] for item in deposits.repository.items(f"{id}.zip")] in ([], ["draft"])
    deposits.repository.faults()
    deposits.arkqueue("retry", deposits.archive.name, "--failed")
    deposits.until(id, "theses", "SUBMITTED")
    assert [item["state"] for item in deposits.repository.items(f"{id}.zip")] == ["review"]


@pytest.mark.full
def test_a_server_that_is_busy_is_tried_again_later(deposits: Deposits) -> None:
    deposits.commit()
    deposits.repository.faults(create={"refuse": 503, "message": "Maintenance until noon."})
    id = deposits.submit("theses")
    deposits.until(id, "theses", None, "theses answers 503: Maintenance until noon.")
    deposits.repository.faults()
    deposits.arkqueue("retry", deposits.name(id, "send/theses"))
    deposits.until(id, "theses", "SUBMITTED")


@pytest.mark.full
def test_a_bad_target_fails_alone_and_says_what_is_wrong(deposits: Deposits) -> None:
    open_to_all = deposits.credentials / "open"
    open_to_all.write_text("{}")
    open_to_all.chmod(0o644)
    stranger = deposits.folder / "stranger"
    stranger.mkdir()
    other = parts.Sshd(stranger)
    wrong_key = deposits.credentials / "wrong"
    wrong_key.touch(0o600)
    wrong_key.write_text(other.key.read_text())
    other.close()
    no_key = deposits.credentials / "no-key"
    no_key.touch(0o600)
    no_key.write_text("secret")
    mirror = deposits.targets["mirror"]
    deposits.targets |= {
        "no-key": {**mirror, "credentials": "no-key"},
        "no-host-key": {**mirror, "host_key": "ssh-ed25519 me@here"},
        "no-assembler": parts.folder_target(deposits.vault, assembler="tar"),
        "no-transport": parts.folder_target(deposits.vault, transport="pigeon"),
        "no-address": {"assembler": "zip", "transport": "folder"},
        "no-credentials": parts.rest_target(deposits.repository, credentials="missing"),
        "open": parts.rest_target(deposits.repository, credentials="open"),
        "wrong-host": {**mirror, "host_key": other.host_key},
        "wrong-key": {**mirror, "credentials": "wrong"},
        "wrong-folder": {**mirror, "address": f"{mirror['address']}/missing"},
    }
    deposits.commit()
    wrong = {
        "unknown": "there is no target repository 'unknown'; known: mirror, no-address, no-assembler,",
        "no-assembler": "there is no assembler 'tar'; known: bagit, zip",
        "no-transport": "there is no transport 'pigeon'; known: folder, rest, sftp",
        "no-address": "targets/no-address.yaml: needs assembler, transport and address",
        "no-credentials": f"there are no credentials {deposits.credentials}/missing",
        "open": f"is not a file for its owner alone; chmod 600 {open_to_all}",
        "no-key": f"{deposits.credentials}/no-key is not an OpenSSH private key without a passphrase",
        "no-host-key": "host_key is not the public key of a host",
        "wrong-host": "has another host key than the one in targets/",
        "wrong-key": "refuses the key of",
        "wrong-folder": "No such file",
    }
    id = deposits.submit("vault", *wrong, "mirror")
    deposits.until(id, "vault", "ACCEPTED")
    deposits.until(id, "mirror", "ACCEPTED")
    for target, said in wrong.items():
        assert said in deposits.until(id, target, "FAILED").message
    assert deposits.submission(id).status == "IN_PROGRESS"
    assert deposits.submission(id).message == "2 ACCEPTED, 11 FAILED"


@pytest.mark.full
def test_what_the_target_has_is_compared_byte_for_byte(deposits: Deposits) -> None:
    deposits.commit()
    deposits.repository.faults(package={"damaged": True})
    id = f"{deposits.archive.name}-damaged"
    (deposits.vault / f"{id}.zip").write_bytes(b"another package")
    deposits.submit("vault", "theses", id=id)
    for target in ("vault", "theses"):
        failed = deposits.until(id, target, "FAILED", f"{target} has another package at ")
        assert failed.task == deposits.task(id, f"verify/{target}")["full_name"]
        assert failed.copy is None
    assert (deposits.vault / f"{id}.zip").read_bytes() == b"another package", "what was there is never overwritten"
    deposits.repository.faults()
    deposits.arkqueue("retry", deposits.name(id, "*/theses"))
    deposits.until(id, "theses", "SUBMITTED")
    assert len(deposits.repository.items(f"{id}.zip")) == 1


@pytest.mark.full
def test_a_rejected_deposit_stays_rejected(deposits: Deposits) -> None:
    deposits.commit()
    id = deposits.submit("theses")
    deposits.until(id, "theses", "SUBMITTED", "inreview")
    deposits.repository.review(f"{id}.zip", "withdrawn", "Not a thesis of ours.")
    deposits.arkqueue("refresh", deposits.name(id, "outcome/theses"))
    rejected = deposits.until(id, "theses", "REJECTED", "withdrawn (Not a thesis of ours.)")
    assert (rejected.copy, deposits.submission(id).status) == ("REJECTED", "REJECTED")

    deposits.repository.review(f"{id}.zip", "archived", "After all.")
    deposits.arkqueue("retry", deposits.name(id, "*/theses"), code=None)
    deposits.arkqueue("refresh", deposits.archive.name, code=1)
    deposits.arkqueue("retry", deposits.name(id, "*/theses"), "--from", "package", "--from-start")
    deposits.wait(lambda: deposits.task(id, "outcome/theses")["state"] == "completed")
    assert "archived" in deposits.arkqueue("logs", deposits.name(id, "outcome/theses")).out
    assert deposits.deposit(id, "theses") == rejected
    assert deposits.submission(id).status == "REJECTED"
    assert len(deposits.repository.items(f"{id}.zip")) == 1


@pytest.mark.full
def test_a_terminal_status_outlives_the_deletion_of_its_deposit(deposits: Deposits) -> None:
    deposits.targets["strict"] = parts.rest_target(
        deposits.repository, collection="strict-theses", status={"default": "rejected"}
    )
    deposits.commit()
    id = deposits.submit("strict", "vault")
    deposits.until(id, "vault", "ACCEPTED")
    rejected = deposits.until(id, "strict", "REJECTED")
    before = deposits.submission(id)
    assert (before.status, before.message) == ("IN_PROGRESS", "1 ACCEPTED, 1 REJECTED")
    deposits.arkqueue("delete", deposits.name(id, "*/strict"))
    after = deposits.submission(id)
    assert (after.status, after.message) == (before.status, before.message)
    gone = deposits.deposit(id, "strict")
    assert gone is not None
    assert (gone.status, gone.copy, gone.location, gone.message) == (
        "REJECTED", "REJECTED", rejected.location, f"{rejected.message} (deleted)",
    )  # fmt: skip
    alone = deposits.submit("strict")
    deposits.until(alone, "strict", "REJECTED")
    deposits.arkqueue("delete", deposits.name(alone, "*/strict"))
    assert deposits.submission(alone).status == "REJECTED"
    deposits.arkqueue("undelete", deposits.name(alone, "*/strict"))
    assert [one.message for one in deposits.submission(alone).deposits] == [gone.message.removesuffix(" (deleted)")]


@pytest.mark.full
def test_a_draft_whose_attempt_was_killed_before_its_metadata_is_removed_by_the_next_try(deposits: Deposits) -> None:
    """Drafts of the same package in another collection, and those of other packages, stay: they may be under way."""
    deposits.targets["other"] = parts.rest_target(deposits.repository, collection="open-theses")
    deposits.commit()
    deposits.repository.faults(create={"hold": True})
    id = deposits.submit("theses")
    eventually(lambda: deposits.repository.overview()["held"])
    name = f"{id}.zip"
    assert [(item["state"], item["metadata"]) for item in deposits.repository.items(name)] == [("draft", {})]
    deposits.arkqueue("cancel", deposits.name(id, "send/theses"))
    deposits.until(id, "theses", "FAILED")
    deposits.repository.faults()
    stranger = deposits.submit("other", id=f"{id}-2")
    deposits.until(stranger, "other", "ACCEPTED")
    assert [item["state"] for item in deposits.repository.items(name)] == ["draft"], "it is no draft of theirs"
    deposits.arkqueue("retry", deposits.name(id, "*/theses"))
    deposits.until(id, "theses", "SUBMITTED", "inreview")
    assert [item["state"] for item in deposits.repository.items(name)] == ["review"]


@pytest.mark.full
def test_two_collections_of_one_repository_each_get_the_package(deposits: Deposits) -> None:
    deposits.targets["other"] = parts.rest_target(deposits.repository, collection="open-theses")
    deposits.commit()
    id = deposits.submit("theses", "other")
    deposits.until(id, "theses", "SUBMITTED", "inreview")
    deposits.until(id, "other", "ACCEPTED")
    items = deposits.repository.items(f"{id}.zip")
    assert sorted((item["collection"], item["state"]) for item in items) == [
        ("open-theses", "archived"),
        ("reviewed-theses", "review"),
    ]


class Cut:
    """Before a server, a relay that cuts each connection once so many bytes have gone to the server; None: none."""

    def __init__(self, port: int, after: int | None) -> None:
        self.after, self.cuts, self._port = after, 0, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                for pair in ((client, server, True), (server, client, False)):
                    self._threads.append(threading.Thread(target=self._relay, args=pair))
                    self._threads[-1].start()

    def _relay(self, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        sent = 0
        with suppress(OSError):
            while piece := source.recv(1 << 14):
                target.sendall(piece)
                sent += len(piece)
                if to_server and self.after is not None and sent >= self.after:
                    self.cuts += 1
                    break
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            if to_server:
                one.close()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.mark.full
def test_a_transfer_that_is_cut_off_is_tried_again_and_leaves_no_half_file_under_the_final_name(
    deposits: Deposits,
) -> None:
    (deposits.files / "scan.tif").write_bytes(random.Random(1).randbytes(4 << 20))
    with closing(Cut(deposits.sshd.port, after=1 << 20)) as cut:
        host, _, rest = deposits.targets["mirror"]["address"].rpartition(f":{deposits.sshd.port}")
        deposits.targets["mirror"] |= {"address": f"{host}:{cut.port}{rest}"}
        deposits.commit()
        id = deposits.submit("mirror")
        name = f"{id}.zip"
        deposits.until(id, "mirror", None, f"mirror: put {deposits.sshd.inbox}/{name}: the connection broke")
        deposits.wait(lambda: deposits.task(id, "send/mirror")["state"] == "deferred")
        assert cut.cuts == 1
        part = deposits.sshd.inbox / f".{name}.part"
        assert 0 < part.stat().st_size < 4 << 20
        assert not (deposits.sshd.inbox / name).exists()
        cut.after = None
        deposits.arkqueue("retry", deposits.name(id, "send/mirror"))
        deposits.until(id, "mirror", "ACCEPTED", "accepted")
        assert not part.exists()
        _assert_has_checksums(deposits.sshd.inbox / name, more={"files/scan.tif"})


@pytest.mark.full
def test_states_that_the_mapping_does_not_name_are_its_default(deposits: Deposits) -> None:
    strict = {parts.ARCHIVED: "accepted", "default": "rejected"}
    deposits.targets["strict"] = parts.rest_target(deposits.repository, status=strict)
    deposits.targets["silent"] = parts.rest_target(deposits.repository, status={})
    deposits.commit()
    deposits.repository.faults(status={"state": "http://example.org/state/lost-in-the-mail"})
    ids = {target: deposits.submit(target) for target in ("theses", "silent", "strict")}
    deposits.until(ids["theses"], "theses", "SUBMITTED", "lost-in-the-mail")
    deposits.until(ids["silent"], "silent", "SUBMITTED", "lost-in-the-mail")
    deposits.until(ids["strict"], "strict", "REJECTED", "lost-in-the-mail")


@pytest.mark.full
def test_a_status_document_that_cannot_be_read_is_no_status(deposits: Deposits) -> None:
    deposits.commit()
    deposits.repository.faults(
        status={"document": "<!DOCTYPE a [<!ENTITY b 'c'>]><feed xmlns='http://www.w3.org/2005/Atom'>&b;</feed>"}
    )
    id = deposits.submit("theses")
    deposits.until(id, "theses", "SUBMITTED", "the status document cannot be read: DTDForbidden")
    deposits.repository.faults(status={"document": "<feed xmlns='http://www.w3.org/2005/Atom'/>"})
    deposits.arkqueue("retry", deposits.name(id, "outcome/theses"))
    deposits.until(id, "theses", "SUBMITTED", "has no Atom category of the scheme")
    deposits.repository.faults()
    deposits.arkqueue("retry", deposits.name(id, "outcome/theses"))
    deposits.until(id, "theses", "SUBMITTED", "inreview")


@pytest.mark.full
def test_an_answer_that_is_lost_leaves_the_deposit_unknown_and_a_retry_asks_first(deposits: Deposits) -> None:
    deposits.commit()
    deposits.repository.faults(workflow={"hold": True})
    id = deposits.submit("theses")
    eventually(lambda: deposits.repository.overview()["held"])
    deposits.repository.stop()
    failed = deposits.until(id, "theses", "FAILED", "it is not known whether the deposit has arrived")
    assert "`arkqueue retry` asks first" in failed.message
    deposits.repository.start()
    assert [item["state"] for item in deposits.repository.items(f"{id}.zip")] == ["review"], "it has arrived"
    deposits.arkqueue("retry", deposits.name(id, "*/theses"))
    deposits.until(id, "theses", "SUBMITTED", "inreview")
    assert (
        "already, from an earlier attempt: not sent again"
        in deposits.arkqueue("logs", deposits.name(id, "send/theses")).out
    )
    assert len(deposits.repository.items(f"{id}.zip")) == 1


@pytest.mark.full
def test_one_submission_that_is_handed_in_twice_is_deposited_once(deposits: Deposits) -> None:
    deposits.commit()
    deposits.repository.faults(workflow={"hold": True})
    id = deposits.submit("theses")
    eventually(lambda: deposits.repository.overview()["held"])
    deposits.arkqueue(
        "submit",
        deposits.archive.name,
        deposits.folder / f"{id}.json",
        "--id",
        f"{id}-again",
        "--attach",
        *deposits.files.iterdir(),
    )
    again = f"{deposits.archive.name}@id:{id}-again/send/{id}.theses"
    eventually(lambda: f"deposit/{id}/theses" in deposits.arkqueue("explain", again).out)
    deposits.repository.faults()
    for each in (id, f"{id}-again"):
        deposits.until(each, "theses", "SUBMITTED", "inreview")
    assert "already, from an earlier attempt: not sent again" in deposits.arkqueue("logs", again).out
    assert len(deposits.repository.items(f"{id}.zip")) == 1
    assert len({deposits.deposit(each, "theses").location for each in (id, f"{id}-again")}) == 1


@pytest.mark.full
def test_failed_deposits_are_retried_although_later_submissions_went_to_the_same_targets(deposits: Deposits) -> None:
    deposits.commit()
    deposits.repository.faults(workflow={"refuse": 422, "message": "dc.rights is required."})
    ids = [deposits.submit("vault", "theses") for _ in range(2)]
    for id in ids:
        deposits.until(id, "theses", "FAILED")
    empty = deposits.submit("vault", files=False)
    deposits.wait(lambda: deposits.submission(empty).status == "FAILED")
    deposits.repository.faults()
    later = deposits.submit("vault", "theses")
    deposits.until(later, "theses", "SUBMITTED", "inreview")
    deposits.arkqueue("retry", deposits.name(ids[0], "*/theses"))
    deposits.until(ids[0], "theses", "SUBMITTED", "inreview")
    deposits.arkqueue("retry", deposits.archive.name, "--failed")
    deposits.until(ids[1], "theses", "SUBMITTED", "inreview")
    assert deposits.submission(empty).status == "FAILED"


@pytest.mark.full
def test_a_deposit_that_is_not_called_after_its_submission_is_none(deposits: Deposits) -> None:
    deposits.commit()
    id = deposits.submit("vault", items=[{"deposit": "other.vault"}])
    deposits.wait(lambda: deposits.submission(id).status == "FAILED")
    assert f"deposit other.vault is none of submission {id}: call it {id}.TARGET" in deposits.submission(id).message


@pytest.mark.full
def test_as_many_deposits_go_at_once_as_max_running_says(deposits: Deposits) -> None:
    deposits.commit()
    deposits.arkqueue("archive", "set", deposits.archive.name, "max_running", "1")
    deposits.repository.faults(workflow={"hold": True})
    first = deposits.submit("theses")
    eventually(lambda: deposits.repository.overview()["held"])
    second = deposits.submit("theses", "vault")
    said = eventually(
        lambda: "max_running" in (out := deposits.arkqueue("explain", deposits.name(second, "check")).out) and out
    )
    assert "1" in str(said)
    assert deposits.submission(second).status == "NOT_STARTED"
    deposits.repository.faults()
    deposits.until(first, "theses", "SUBMITTED")
    deposits.until(second, "vault", "ACCEPTED")


@pytest.mark.full
def test_passwords_are_in_no_log_no_output_and_not_in_the_archive(deposits: Deposits) -> None:
    deposits.commit()
    id = deposits.submit("theses", "mirror")
    deposits.until(id, "theses", "SUBMITTED", "inreview")
    deposits.until(id, "mirror", "ACCEPTED")
    password, key = deposits.repository.login["password"], deposits.sshd.key.read_text().splitlines()[2]
    told = [deposits.arkqueue("report", f"{deposits.archive.name}@id:{id}", "--json", code=None).out]
    for step in statuses.STEPS:
        for target in ("theses", "mirror"):
            name = deposits.name(id, f"{step}/{target}")
            told += [deposits.arkqueue("logs", name).out, deposits.arkqueue("show", name, "--json").out]
    told += parts.archive_files(deposits.targets, credentials=deposits.credentials).values()
    assert not [text for text in told if password in text or key in text]


@pytest.mark.full
def test_a_killed_server_between_the_remotes_yes_and_its_record_deposits_nothing_twice(
    installations: Installations, repository: parts.Repository, sshd: parts.Sshd, tmp_path: Path
) -> None:
    arkqueue = installations()
    server = arkqueue.start()
    deposits = a_deposit_archive(arkqueue, repository, sshd, tmp_path)
    deposits.commit()
    repository.faults(workflow={"hold": True})
    id = deposits.submit("theses", "vault")
    deposits.until(id, "vault", "ACCEPTED")
    eventually(lambda: repository.overview()["held"])
    server.kill()
    repository.faults()
    assert len(repository.items(f"{id}.zip")) == 1, "the repository has said yes"
    arkqueue.start()
    failed = deposits.until(id, "theses", "FAILED", "it is not known whether theses has it")
    assert failed.copy is None
    assert deposits.task(id, "send/theses")["state"] == "failed"
    asked = repository.overview()["asked"]["workflow"]
    deposits.arkqueue("retry", deposits.name(id, "*/theses"), "--from-start")
    deposits.until(id, "theses", "SUBMITTED", "inreview")
    assert (
        "already, from an earlier attempt: not sent again"
        in deposits.arkqueue("logs", deposits.name(id, "send/theses")).out
    )
    assert len(repository.items(f"{id}.zip")) == 1
    assert repository.overview()["asked"]["workflow"] == asked


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_deposit_that_is_in_review_for_a_week_is_asked_about_each_hour_and_then_accepted(deposits: Deposits) -> None:
    """Its hours take as long as a poll takes."""
    deposits.commit(every="0.1s")
    hours = 7 * 24
    before = deposits.repository.overview()["asked"]["status"]
    id = deposits.submit("theses")
    eventually(lambda: deposits.repository.overview()["asked"]["status"] >= before + hours, patience=900)
    assert deposits.deposit(id, "theses").status == "SUBMITTED"
    deposits.repository.review(f"{id}.zip", "archived")
    deposits.until(id, "theses", "ACCEPTED")
    asked = deposits.repository.overview()["asked"]
    attempts = deposits.task(id, "outcome/theses")["history"]
    assert [one["kind"] for one in attempts] == ["run", *["poll"] * (len(attempts) - 1)]
    assert len(attempts) == asked["status"] - before > hours
    assert [one["exit_code"] for one in attempts] == [75] * (len(attempts) - 1) + [0]
    assert len(deposits.repository.items(f"{id}.zip")) == 1


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("sshd")
@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.full), pytest.param(("--git",), marks=pytest.mark.long)]
)
def test_the_example_runs_to_its_good_end_and_leaves_everything_behind(
    open_folder: Path, words: tuple[str, ...]
) -> None:
    folder = open_folder / "example"
    program = [sys.executable, ROOT / "workflows-examples" / "deposit" / "run.py", "--folder", folder, *words]
    env = environment(PYTHONPATH=f"{ROOT / 'workflows-examples'}:{ROOT}", COLUMNS="200")
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False)
    try:
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        for said in (
            "s-1  IN_PROGRESS  2 ACCEPTED, 1 FAILED", "theses answers 422: dc.rights is required in this collection.", "s-1  ACCEPTED  3 ACCEPTED",
            "s-2  FAILED  submission s-2 has no files", "s-3  IN_PROGRESS  2 ACCEPTED, 1 not sent", "s-3  IN_PROGRESS  2 ACCEPTED, 1 REJECTED",
        ):  # fmt: skip
            assert said in done.stdout
        assert {file.name for file in (folder / "vault").iterdir()} == {"s-1.zip", "s-3.zip"}
        eventually(lambda: not processes_of(str(folder)))
    finally:
        destroy_sound(Embedded(folder / "home"))


def _item(deposits: Deposits, id: str) -> dict[str, Any]:
    (item,) = deposits.repository.items(f"{id}.zip")
    return item


def _assert_is_a_bag(package: Path, id: str, folder: Path) -> None:
    with zipfile.ZipFile(package) as archive:
        archive.extractall(folder / "bag")
    bag = bagit.Bag(str(folder / "bag" / id))
    bag.validate()
    assert bag.algorithms == ["sha256"]
    assert {name: (folder / "bag" / id / "data" / name).read_bytes() for name in FILES} == FILES
    assert (bag.info["External-Identifier"], bag.info["Contact-Name"]) == (id, "Ann Archer")


def _assert_has_checksums(package: Path, more: Collection[str] = ()) -> None:
    with zipfile.ZipFile(package) as archive:
        lines = archive.read("manifest-sha256.txt").decode().splitlines()
        found = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        assert found == {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if name != "manifest-sha256.txt"
        }
        assert {*more, *(f"files/{name}" for name in FILES)} < found.keys()
