"""The example ``workflows-examples/ingest`` with its real parts: arkqueue, the services, and for
each test the archive of a collection.
"""

from __future__ import annotations

import email
import hashlib
import importlib
import json
import shlex
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ingest import host

from arkqueue.db.embedded.server import Embedded
from tests.loaded import write_program, write_python
from tests.postgres import a_database
from tests.program import run_cli
from tests.repositories import a_subversion_repository
from tests.soundness import assert_sound
from tests.system.end_to_end.installation import IDLE, Installation
from tests.waiting import eventually, when_changed

ENDED = ("completed", "failed", "canceled", "superseded", "deleted")
SUBMITTER = "ann@example.org"


def key(batch: str, job: str = "0001") -> str:
    """The key of a job among the jobs of all batches. ``job``: its number within the batch."""
    return f"{batch}.{job}"


@dataclass
class Ingest:
    """The archive of a collection on an ingest host. A call runs the command line."""

    arkqueue: Installation
    services: host.Services
    folder: Path
    name: str
    settings: Path
    said: str = ""
    """The output of the last submission."""

    def __call__(self, *words: str, code: int | None = 0) -> Any:
        return self.arkqueue(*words, code=code)

    def job(self, batch: str, job: str = "0001") -> str:
        """The name of a job."""
        return f"{self.name}@id:{batch}-jobs/*/{key(batch, job)}"

    def task(self, batch: str, task: str, job: str = "0001") -> str:
        """The name of a task of a job."""
        return f"{self.name}@id:{batch}-jobs/{task}/{key(batch, job)}"

    def submit(self, *attach: Path, code: int = 0, hold: bool = False, batch: str = "", **document: Any) -> str:
        """Submits a batch. Returns the batch's id."""
        batch = batch or f"bid-{uuid.uuid4().hex[:8]}"
        file = self.folder / f"{batch}.json"
        file.write_text(json.dumps({"profile_name": "demo_content", "submitter": SUBMITTER, "items": []} | document))
        words = ["--hold"] * hold + [word for path in attach for word in ("--attach", str(path))]
        done = self("submit", self.name, str(file), "--id", batch, *words, code=code)
        self.said = done.out + done.err
        return batch

    def content(self, text: str = "", name: str = "") -> dict[str, Any]:
        """Puts a new file on the depositor's server. Returns its line for a manifest."""
        name = name or f"{uuid.uuid4().hex[:12]}.txt"
        data = (text or f"what stands in {name}").encode()
        return {
            "url": self.services.content(f"{self.name}/{name}", data),
            "digest_type": "sha-256",
            "digest_value": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "name": name,
        }

    def manifest(self, *lines: Mapping[str, Any], profile: str = "mrt-ingest-manifest") -> dict[str, Any]:
        """Puts a manifest on the depositor's server. Returns its line for another manifest."""
        return self.content(host.checkm(profile, list(lines)), f"{uuid.uuid4().hex[:12]}.checkm")

    # The results

    def run(self, id: str) -> Any:
        """The run of a submission, or None."""
        runs = self.arkqueue.api.get("/runs", archive=self.name, limit=500)["runs"]
        return next((run for run in runs if run["submission"] == f"{self.name}@id:{id}"), None)

    def states(self, batch: str, job: str = "0001") -> dict[str, str]:
        """The states of a job's tasks."""
        return {task["name"]: task["state"] for task in self.tasks(f"{batch}-jobs", key(batch, job))}

    def tasks(self, id: str, item: str = "") -> list[dict[str, Any]]:
        """The tasks of a run, or of one of its jobs, with their attempts."""
        return self.arkqueue.sql(
            "select t.name, t.state::text, t.priority, t.fault,"
            " (select coalesce(json_agg(json_build_object('kind', x.kind, 'end', x.end, 'code', x.exit_code, 'outputs', x.outputs) order by x.id), '[]')"
            " from attempt x where x.task_id = t.id) as attempts"
            " from task t join submission s on s.run_id = t.run_id join archive a on a.id = t.archive_id"
            " where a.name = %s and s.sender_id = %s and t.item = %s order by t.position",
            self.name,
            id,
            item,
        )

    def outputs(self, batch: str, job: str = "0001") -> dict[str, Any]:
        """All outputs of a job."""
        tasks = self.tasks(f"{batch}-jobs", key(batch, job))
        return {k: v for task in tasks for attempt in task["attempts"] for k, v in (attempt["outputs"] or {}).items()}

    def why(self, batch: str, task: str, job: str = "0001") -> str:
        """The message of the newest ended attempt of a job's task."""
        ended = [attempt["outputs"] for attempt in self.attempts(batch, task, job) if attempt["end"]]
        return str((ended[-1] or {}).get("message", ""))

    def attempts(self, batch: str, task: str, job: str = "0001") -> list[dict[str, Any]]:
        return next(
            (list(t["attempts"]) for t in self.tasks(f"{batch}-jobs", key(batch, job)) if t["name"] == task), []
        )

    def ended(self, id: str, state: str = "completed") -> Any:
        """Waits until a run and its report have ended."""

        def has() -> Any:
            run = self.run(id)
            assert not run or run["state"] == state or run["state"] not in ENDED, self.told(id)
            return run and run["state"] == state and run["report"] == "completed" and run

        return eventually(when_changed(has, lambda: self.arkqueue.changes(self.name)), lambda: self.told(id))

    def jobs_ended(self, batch: str, state: str = "completed") -> Any:
        """Waits until the jobs of a batch and their report have ended."""
        self.ended(batch)
        return self.ended(f"{batch}-jobs", state)

    def reaches(self, batch: str, task: str, state: str, job: str = "0001") -> None:
        """Waits until a job's task has a state."""
        eventually(lambda: self.states(batch, job).get(task) == state, lambda: self.told(f"{batch}-jobs"))

    def log(self, task: str) -> str:
        """The log of a task, with any traceback."""
        return run_cli("--home", str(self.arkqueue.home()), "logs", task).out

    def told(self, id: str) -> str:
        said = str(self("show", f"{self.name}@id:{id}", code=None).out)
        failed = [line.split()[0] for line in said.splitlines() if line.startswith(self.name) and " failed " in line]
        return said + "".join(self.log(name) for name in failed[:3] if "/" in name)

    def mails(self, batch: str) -> list[EmailMessage]:
        """The mails to the depositor about a batch."""
        mails = [email.message_from_bytes(path.read_bytes(), policy=default) for path in self.services.mails]
        return [mail for mail in mails if isinstance(mail, EmailMessage) and f"Batch {batch} " in str(mail["Subject"])]

    def text(self, batch: str) -> str:
        """The text of the newest mail about a batch."""
        return str(self.mails(batch)[-1].get_content()).replace("\r\n", "\n")

    def subjects(self, batch: str) -> list[str]:
        return [str(mail["Subject"]).removeprefix(f"Batch {batch} ") for mail in self.mails(batch)]


TOOLS = "job", "manifest", "pending", "estimating", "provisioning", "downloading", "mint", "batch"


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The programs of the collection's archive, importable as modules."""
    monkeypatch.syspath_prepend(host.HERE / "collection" / "tools")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in TOOLS})
    for name in TOOLS:
        sys.modules.pop(name, None)


Servers = tuple[Installation, host.Services]


@pytest.fixture(scope="session")
def servers(postgres: Embedded, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """arkqueue and the services, for all tests of a worker."""
    folder = tmp_path_factory.mktemp("ingest")
    with a_database(postgres, template) as uri, a_database(postgres, "template0") as own:
        arkqueue = Installation(folder / "arkqueue", uri, slots=8, sweep="5s", **IDLE)
        arkqueue.start()
        with host.services(folder / "services", own) as services:
            arkqueue("lock", "set", "global/ingest", "unlimited")
            yield arkqueue, services
        arkqueue.close()


@pytest.fixture
def ingest(servers: Servers, tmp_path: Path) -> Iterator[Ingest]:
    """A test's own collection. Faults that the test has switched on are switched off afterwards."""
    arkqueue, services = servers
    made = a_collection(arkqueue, services, tmp_path)
    yield made
    for name in ("content", "minting", "storage", "inventory", "callback", "mail"):
        services.switch(name)
    arkqueue("archive", "remove", made.name, code=None)
    assert_sound(arkqueue.connection)


def a_collection(
    arkqueue: Installation,
    services: host.Services,
    folder: Path,
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    is_alone: bool = False,
    **working_storage: Any,
) -> Ingest:
    """Registers the archive of a collection, and sets up the ingest host for it. ``profiles``:
    fields that differ from the example's. ``is_alone``: the programs start as in the example.
    Otherwise they start with their modules imported, which takes each a quarter of the CPU time.
    """
    name = f"demo-{uuid.uuid4().hex[:8]}"
    settings = folder / f"{name}.json"
    files = host.collection_files(settings, profiles)
    # A shorter delay saves half a minute of waiting for the same retries.
    files = {path: text.replace("delay: 2s", "delay: 0.2s") for path, text in files.items()}
    _register(arkqueue, folder, name, files if is_alone else _loaded(folder, files))
    token = arkqueue("token", "create", "--scope", "operate", "--archive", name).out.strip()
    storage = {"threshold": 100, "threshold_unestimated": 100, "retry_after": 1} | working_storage
    host.write_settings(settings, services, arkqueue.home(), token, **storage)
    if not is_alone:
        program = folder / "arkqueue-loaded"
        write_program(program)
        host.change_settings(settings, arkqueue=[str(program)])
    return Ingest(arkqueue, services, folder, name, settings)


def an_access_queue(arkqueue: Installation, services: host.Services, folder: Path, large: str) -> Ingest:
    """Registers the archive of an access queue. ``large``: the size from which a request belongs to
    the large pool.
    """
    name = f"access-{uuid.uuid4().hex[:8]}"
    settings = folder / f"{name}.json"
    _register(arkqueue, folder, name, _loaded(folder, host.access_files(settings)))
    token = arkqueue("token", "create", "--scope", "read", "--archive", name).out.strip()
    host.write_settings(settings, services, arkqueue.home(), token, large=large)
    arkqueue("lock", "set", f"{name}/accessSmall", "4")
    return Ingest(arkqueue, services, folder, name, settings)


def _loaded(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """The files of an archive, whose launcher starts programs with their modules imported."""
    python = folder / "python"
    write_python(python)
    launcher = "ingest" if "ingest" in files else "access"
    assert sys.executable in files[launcher]
    return files | {launcher: files[launcher].replace(shlex.quote(sys.executable), shlex.quote(str(python)))}


def _register(arkqueue: Installation, folder: Path, name: str, files: Mapping[str, str]) -> None:
    repository = a_subversion_repository(folder, name)
    repository.commit(files, message="The workflow and its programs")
    arkqueue("archive", "add", name, str(repository.path), "--executor", "process")
