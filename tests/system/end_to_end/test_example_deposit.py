"""The application `workflows-examples/deposit`: submissions to several repositories, with everything real (its README says what it does)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import bagit
import pytest
from deposit import parts, statuses

from tests.repositories import a_git_repository
from tests.system.end_to_end.installation import Archive, Installation
from tests.waiting import eventually

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

    def commit(self) -> None:
        self.archive.commit(parts.archive_files(self.credentials, self.targets))

    def submit(self, *targets: str, id: str = "", files: bool = True, **more: Any) -> str:
        """Hand in a submission; its id, which no other test has in the repository."""
        id = id or f"{self.archive.name}-{len(list(self.folder.glob('*.json')))}"
        document = self.folder / f"{id}.json"
        document.write_text(json.dumps(parts.submission(id, targets, **more)))
        attached = ["--attach", *self.files.iterdir()] if files else []
        self.arkqueue("submit", self.archive.name, document, "--id", id, *attached)
        return id

    def name(self, id: str, rest: str) -> str:
        return f"{self.archive.name}@id:{id}/{rest}"

    def submission(self, id: str) -> statuses.Submission:
        with statuses.connect(self.arkqueue.home()) as api:
            (found,) = statuses.submissions(api, self.archive.name, [id])
        return found

    def deposit(self, id: str, target: str) -> statuses.Deposit:
        return next(one for one in self.submission(id).deposits if one.target == target)

    def until(self, id: str, target: str, status: str | None, said: str = "") -> statuses.Deposit:
        """Wait until a deposit has a status, and says something; the deposit."""
        found: list[statuses.Deposit] = []

        def came() -> bool:
            found[:] = [self.deposit(id, target)]
            return found[0].status == status and said in found[0].message

        eventually(came, lambda: found)
        return found[0]


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


@pytest.fixture
def deposits(
    shared: Installation, repository: parts.Repository, sshd: parts.Sshd, tmp_path: Path
) -> Iterator[Deposits]:
    name = f"deposits-{tmp_path.name[-30:]}"
    made = a_git_repository(tmp_path, name)
    made.commit({"README": "Deposits\n"}, message="Begin")
    shared("archive", "add", name, made.path, "--executor", "process")
    shared("hook", "install", made.path)
    found = Deposits(Archive(shared, name, made), tmp_path, repository, sshd)
    yield found
    repository.faults()


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


def test_a_submission_without_files_fails_and_makes_no_deposit(deposits: Deposits) -> None:
    deposits.commit()
    id = deposits.submit("vault", "theses", files=False)
    eventually(lambda: deposits.submission(id).status == "FAILED")
    found = deposits.submission(id)
    assert found.message.startswith(f"submission {id} has no files, so there is nothing to deposit")
    assert found.deposits == []
    assert list(deposits.vault.iterdir()) == []
    assert deposits.repository.items(f"{id}.zip") == []


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


def _assert_has_checksums(package: Path) -> None:
    import hashlib

    with zipfile.ZipFile(package) as archive:
        lines = archive.read("manifest-sha256.txt").decode().splitlines()
        found = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
        assert found == {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
            if name != "manifest-sha256.txt"
        }
        assert {f"files/{name}" for name in FILES} < found.keys()
