"""Polls in real processes and containers: what they get, how they end, and what is in their logs
(design 5.29).
"""

from __future__ import annotations

import json
from pathlib import Path

from arkqueue.model import Stream
from arkqueue.queue import retrying
from tests.builders import AnArchive
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import Managers, attempts, ended, log_of, settled
from tests.system.task_manager.test_running import MakeBells, command

__all__ = ["boxes"]

HAND_OVER = "echo handed over; echo id=d-1 > $ARKQUEUE_OUTPUT; exit 75"
ASK = "cat $ARKQUEUE_INPUTS; echo state=accepted > $ARKQUEUE_OUTPUT"


def poll(text: str, **more: str) -> str:
    return json.dumps({"command": text, **more})


def is_polled(archive: AnArchive, attempt: int) -> None:
    """Let the poll run that makes this attempt, and wait for its end."""
    settled(archive, "deposit@2", "deferred")
    retrying.refresh(archive.session, archive.task("deposit@2"), "ann")
    ended(archive, "deposit@2", attempt)


def test_the_poll_runs_in_place_of_the_command_with_a_log_of_its_own(archive: AnArchive, managers: Managers) -> None:
    managers()
    archive.commit({"deposit": command(HAND_OVER, poll=poll(ASK))})
    ended(archive, "deposit@2")
    assert log_of(archive, "deposit@2", Stream.STDOUT) == "handed over\n"
    is_polled(archive, 2)
    settled(archive, "deposit@2", "completed")
    assert json.loads(log_of(archive, "deposit@2", Stream.STDOUT))["self"] == {"id": "d-1"}
    first, second = attempts(archive, "deposit@2")
    assert (first["kind"], first["exit_code"], second["kind"], second["exit_code"]) == ("run", 75, "poll", 0)
    assert second["outputs"] == {"id": "d-1", "state": "accepted"}


def test_a_poll_has_the_tasks_variables_and_a_script_its_shell(archive: AnArchive, managers: Managers) -> None:
    managers()
    script = {"script": "echo ${GREETING} $ARKQUEUE_TASK $ARKQUEUE_ATTEMPT\nset -o pipefail && exit 65"}
    deposit = f"checkout: none\nscript: exit 75\nshell: bash\nenv: {{GREETING: hello}}\npoll: {json.dumps(script)}"
    archive.commit({"deposit": deposit})
    is_polled(archive, 2)
    settled(archive, "deposit@2", "rejected")
    assert log_of(archive, "deposit@2", Stream.STDOUT) == "hello deposit 2\n"


def test_a_poll_has_a_timeout_of_its_own_and_is_repeated(archive: AnArchive, managers: Managers) -> None:
    managers()
    retries = "{max: 1, delay: 0.1s}"
    ask = poll("test $ARKQUEUE_ATTEMPT = 3 || sleep 1000", timeout="0.2s")
    archive.commit({"deposit": command("exit 75", retries=retries, poll=ask)})
    settled(archive, "deposit@2", "deferred")
    retrying.refresh(archive.session, archive.task("deposit@2"), "ann")
    second = ended(archive, "deposit@2", 2)
    assert (second["end"], second["message"]) == ("timed-out", "stopped after its timeout of 0.2 s")
    settled(archive, "deposit@2", "deferred")
    archive.retry("deposit@2")
    settled(archive, "deposit@2", "completed")


def test_a_poll_runs_in_the_tasks_container(
    archive: AnArchive, boxes: Boxes, managers: Managers, home_folder: Path
) -> None:
    home_folder.mkdir()
    managers(**boxes.settings)
    archive.commit({"deposit": boxes.task(HAND_OVER, poll={"command": f"{ASK}; grep builder /etc/passwd"})})
    is_polled(archive, 2)
    settled(archive, "deposit@2", "completed")
    first, second = attempts(archive, "deposit@2")
    assert (second["kind"], second["image"]) == ("poll", first["image"])
    assert second["outputs"] == {"id": "d-1", "state": "accepted"}
    assert log_of(archive, "deposit@2", Stream.STDOUT).count("builder:x") == 1


def test_cancel_stops_a_live_poll(archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
    begun = bells("begun")
    managers()
    archive.commit({"deposit": command("exit 75", poll=poll(f"echo on > {begun.path}; sleep 1000"))})
    settled(archive, "deposit@2", "deferred")
    retrying.refresh(archive.session, archive.task("deposit@2"), "ann")
    assert begun.hear() == "on"
    archive.cancel("deposit@2")
    settled(archive, "deposit@2", "canceled")
    assert attempts(archive, "deposit@2")[-1]["end"] == "stopped"
