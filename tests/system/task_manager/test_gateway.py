"""The gateway is all that a task manager needs, and what goes through it can go
through a network.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.gateway.sql import SqlGateway
from arkqueue.task_manager import TaskManager
from tests.builders import AnArchive
from tests.system.task_manager.conftest import Bells, attempts, log_of, settled
from tests.system.task_manager.test_running import command

MakeBells = Callable[[str], Bells]

PLAIN = {("builtins", "set")}


class Plain(pickle.Unpickler):
    """Knows the values of ``arkqueue.model`` and Python's own, and nothing of a database."""

    def find_class(self, module: str, name: str) -> Any:
        assert module.startswith("arkqueue.model.") or (module, name) in PLAIN, (
            f"{module}.{name} goes through the gateway"
        )
        return super().find_class(module, name)


def copied(value: Any) -> Any:
    return Plain(io.BytesIO(pickle.dumps(value))).load()


@dataclass
class Far:
    """A gateway whose calls are carried out elsewhere: all that it is given and gives is copied."""

    near: SqlGateway
    process: str
    host: str
    called: set[str] = field(default_factory=set)

    def bell(self, topic: Any) -> Any:
        return self.near.bell(topic)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.called.add(name)
            return copied(getattr(self.near, name)(*copied(arguments), **copied(options)))

        return call


def test_task_manager_runs_tasks_with_nothing_but_copies_of_values(
    archive: AnArchive, session: Session, home_folder: Path, bells: MakeBells
) -> None:
    opened: list[Far] = []

    def opener(process: str, host: str, store: str) -> Any:
        opened.append(Far(SqlGateway(session, process, host, store=store), process, host))
        return opened[-1]

    begun = bells("begun")
    archive.commit(
        {
            "first": command("echo hello; echo key=value > $ARKQUEUE_OUTPUT"),
            "second": "depends: [first]\n" + command("cat $ARKQUEUE_INPUTS"),
            "third": command(f"echo > {begun.path}; sleep 1000"),
        }
    )
    manager = TaskManager(opener, Configuration.load({}, home=home_folder, poll="100ms", renew="100ms", min_free=0))
    manager.start()
    try:
        settled(archive, "second@2", "completed")
        begun.hear()
        archive.cancel("third@2")
        settled(archive, "third@2", "canceled")
    finally:
        manager.stop()
    assert log_of(archive, "first@2") == "hello\n"
    assert '"key": "value"' in log_of(archive, "second@2")
    assert {one["process"] for key in ("first@2", "third@2") for one in attempts(archive, key)} == {manager.process}
    (far,) = opened
    assert {"register", "expire", "live", "claim", "definitions", "inputs", "append_log", "stops", "unregister"} <= far.called  # fmt: skip
    assert far.called & {"finish", "finish_and_claim"}
