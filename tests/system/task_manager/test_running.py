"""The inputs of a task, its output, and the consequences of its end: real processes, real
PostgreSQL, the real queue.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from arkqueue import logs
from arkqueue.db.session import Session
from arkqueue.logs.write import CHUNK
from arkqueue.model import AttemptId, Stream
from arkqueue.queue import finish
from arkqueue.queue.logs import follow as announce
from arkqueue.task_manager import recorder
from tests.builders import AnArchive, an_archive
from tests.following import follow
from tests.system.task_manager.conftest import Bells, Managers, attempts, ended, is_gone, log_of, settled
from tests.waiting import eventually

NONE = "checkout: none\n"
MakeBells = Callable[[str], Bells]


def command(text: str, **fields: str) -> str:
    """The fields of a task that runs a shell command on no files."""
    return NONE + f"command: {json.dumps(text)}\n" + "".join(f"{key}: {value}\n" for key, value in fields.items())


# --- What it gets ----------------------------------------------------------------------------------------------------


def environment_of(archive: AnArchive, key: str) -> dict[str, str]:
    settled(archive, key, "completed")
    return dict(line.split("=", 1) for line in log_of(archive, key, Stream.STDOUT).splitlines() if "=" in line)


def test_task_gets_the_variables_of_the_design_and_nothing_of_the_server(
    archive: AnArchive, managers: Managers, home_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "secret")
    managers()
    archive.commit({"show": command("env", env="{GREETING: hello}")})
    found = environment_of(archive, "show@2")
    (attempt,) = attempts(archive, "show@2")
    work = home_folder / "work" / str(attempt["id"])
    expected = {
        "CI": "true", "ARKQUEUE": "1", "ARKQUEUE_ARCHIVE": "papers", "ARKQUEUE_BRANCH": "", "ARKQUEUE_REVISION": "2", "ARKQUEUE_NUMBER": "2",
        "ARKQUEUE_PREVIOUS": "1", "ARKQUEUE_BASE": "", "ARKQUEUE_TASK": "show", "ARKQUEUE_RUN": "1", "ARKQUEUE_ATTEMPT": "1",
        "ARKQUEUE_TRIGGER": "commit", "ARKQUEUE_AUTHOR": "ann", "ARKQUEUE_MESSAGE": str(work / "files" / "message"), "ARKQUEUE_ITEM": "", "ARKQUEUE_INPUTS": str(work / "files" / "inputs.json"), "ARKQUEUE_OUTPUT": str(work / "files" / "output"),
        "GREETING": "hello", "PWD": str(work / "tree"), "TMPDIR": str(work / "files" / "tmp"), "LANG": "C.UTF-8",
    }  # fmt: skip
    assert {name: found.get(name) for name in expected} == expected
    assert {"PATH", "HOME"} <= found.keys()
    assert not {"OF_THE_SERVER", "ARKQUEUE_CHANGES"} & found.keys()


def test_base_is_where_the_task_last_completed_and_previous_is_the_revision_before(
    archive: AnArchive, managers: Managers
) -> None:
    managers()
    show = command("env")
    archive.commit({"show": show})
    settled(archive, "show@2", "completed")
    archive.commit({"show": command("exit 1")})
    settled(archive, "show@3", "failed")
    archive.commit({"show": show})
    found = environment_of(archive, "show@4")
    assert (found["ARKQUEUE_BASE"], found["ARKQUEUE_PREVIOUS"]) == ("2", "3")


def test_script_is_run_by_its_shell(archive: AnArchive, managers: Managers) -> None:
    managers()
    archive.commit({"py": NONE + "shell: python3\nscript: |\n  import sys\n  print(sys.version_info[0], 'or more')\n"})
    settled(archive, "py@2", "completed")
    assert log_of(archive, "py@2") == "3 or more\n"


# --- How it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "state"), [(0, "completed"), (1, "failed"), (65, "rejected"), (75, "deferred"), (255, "failed")]
)
def test_exit_code_decides_the_state(archive: AnArchive, managers: Managers, code: int, state: str) -> None:
    managers()
    archive.commit({"task": command(f"exit {code}")})
    settled(archive, "task@2", state)
    (attempt,) = attempts(archive, "task@2")
    assert (attempt["end"], attempt["exit_code"]) == ("exited", code)
    assert attempt["claimed_at"] < attempt["started_at"] < attempt["ended_at"]


def test_beginning_is_recorded_while_the_program_runs(archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
    bell = bells("bell")
    managers()
    archive.commit({"wait": command(f"read line < {bell.path}")})
    eventually(lambda: (found := attempts(archive, "wait@2")) and found[0]["started_at"])
    assert attempts(archive, "wait@2")[0]["ended_at"] is None
    bell.ring()
    settled(archive, "wait@2", "completed")


def test_beginning_of_a_short_program_is_recorded_with_its_end(
    archive: AnArchive, managers: Managers, bells: MakeBells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "SHORT", 1000.0)
    begun, end = bells("begun"), bells("end")
    manager = managers()
    archive.commit({"short": command(f"echo > {begun.path}; read line < {end.path}; sleep 0.3")})
    begun.hear()
    # The moment at which the start is known here and not yet recorded.
    eventually(lambda: manager._recorder.lane(archive.id)._started)
    assert attempts(archive, "short@2")[0]["started_at"] is None
    end.ring()
    settled(archive, "short@2", "completed")
    (attempt,) = attempts(archive, "short@2")
    assert attempt["claimed_at"] < attempt["started_at"]
    assert (attempt["ended_at"] - attempt["started_at"]).total_seconds() >= 0.3


def test_death_by_a_signal_is_a_failure_with_its_number(archive: AnArchive, managers: Managers) -> None:
    managers()
    archive.commit({"task": command("kill -9 $$")})
    settled(archive, "task@2", "failed")
    (attempt,) = attempts(archive, "task@2")
    assert (attempt["exit_code"], attempt["message"]) == (137, "killed by signal 9 (SIGKILL)")
    assert "killed by signal 9 (SIGKILL)" in log_of(archive, "task@2", Stream.NOTE)


def test_what_an_attempt_used_is_recorded_with_its_end(
    archive: AnArchive, managers: Managers, bells: MakeBells, time_begins: Callable[[Callable[[], object]], None]
) -> None:
    """Whether it ends by itself, with its outputs, or its time is up; of one whose guard was killed nothing is known."""
    burn = (
        f"{sys.executable} -I -S -c \"import time; held = b'x' * (100 << 20)\nwhile time.process_time() < 0.3: pass\""
    )
    begun = bells("begun")
    time_begins(begun.hear)
    archive.commit(
        {
            "ends": command(f"{burn}; echo a=b > $ARKQUEUE_OUTPUT; echo > {begun.path}; exit 3"),
            "late": command(f"{burn}; echo > {begun.path}; sleep 1000", timeout="1s", grace="1s"),
            "lost": command(f"{burn}; echo > {begun.path}; kill -9 $PPID; sleep 1000", on_lost="fail"),
        }
    )
    managers(slots=1)
    for key in ("ends@2", "late@2", "lost@2"):
        settled(archive, key, "failed")
    for key, end in {"ends@2": "exited", "late@2": "timed-out"}.items():
        (attempt,) = attempts(archive, key)
        assert (attempt["end"], attempt["usage_sampled"]) == (end, False)
        assert 0.3 <= attempt["processor_seconds"] < 5
        assert 100 << 20 <= attempt["peak_memory_bytes"] < 200 << 20
    assert attempts(archive, "ends@2")[0]["outputs"] == {"a": "b"}
    (attempt,) = attempts(archive, "lost@2")
    assert (attempt["end"], attempt["processor_seconds"], attempt["peak_memory_bytes"]) == ("lost", None, None)


def test_task_whose_guard_was_killed_is_lost_and_runs_again(archive: AnArchive, managers: Managers) -> None:
    """Nobody knows how it ended: a failure would hold up all later revisions (`on_lost` decides)."""
    once = "test $ARKQUEUE_ATTEMPT -gt 1 || { kill -9 $PPID; sleep 1000; }"
    archive.commit({"once": command(once), "never": command(once, on_lost="fail")})
    managers()
    settled(archive, "once@2", "completed")
    settled(archive, "never@2", "failed")
    assert [attempt["end"] for attempt in attempts(archive, "once@2")] == ["lost", "exited"]
    assert [attempt["end"] for attempt in attempts(archive, "never@2")] == ["lost"]


def test_failed_task_is_retried_until_its_retries_are_used_up(
    archive: AnArchive, session: Session, managers: Managers
) -> None:
    managers()
    archive.commit({"task": command("exit 3", retries="{max: 1, delay: 1s}")})
    settled(archive, "task@2", "deferred")

    def failed() -> bool:
        finish.wake_deferred(session)
        return archive.state("task@2") == "failed"

    eventually(failed)
    assert [a["exit_code"] for a in attempts(archive, "task@2")] == [3, 3]


def test_task_that_takes_too_long_is_ended_and_fails(
    archive: AnArchive, managers: Managers, bells: MakeBells, time_begins: Callable[[Callable[[], object]], None]
) -> None:
    begun = bells("begun")
    children: list[int] = []
    time_begins(lambda: children.append(int(begun.hear())))
    managers()
    archive.commit({"task": command(f"sleep 1000 & echo $! > {begun.path}; wait", timeout="1s", grace="1s")})
    settled(archive, "task@2", "failed")
    assert [is_gone(child) for child in children] == [True]
    (attempt,) = attempts(archive, "task@2")
    assert attempt["end"] == "timed-out"
    assert "timeout of 1 s" in attempt["message"]
    assert "timeout of 1 s" in log_of(archive, "task@2", Stream.NOTE)


def test_canceled_task_is_gone_with_its_grandchildren(archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
    begun = bells("begun")
    managers()
    grandchild = f"setsid sh -c 'trap : TERM; echo $$ > {begun.path}; while :; do sleep 1000; done' & wait"
    archive.commit(
        {"task": command(grandchild, grace="1s"), "after": f"{NONE}depends: [{{task: task, when: settled}}]"}
    )
    pid = int(begun.hear())
    archive.cancel("task@2")
    settled(archive, "task@2", "canceled")
    assert is_gone(pid)
    settled(archive, "after@2", "completed")
    assert "it was canceled" in log_of(archive, "task@2", Stream.NOTE)


def test_restarted_task_runs_once_more_without_settling(
    archive: AnArchive, managers: Managers, bells: MakeBells
) -> None:
    begun = bells("begun")
    managers()
    archive.commit(
        {"task": command(f"echo $ARKQUEUE_ATTEMPT > {begun.path}; test $ARKQUEUE_ATTEMPT = 2 || sleep 1000")}
    )
    assert begun.hear() == "1"
    archive.restart("task@2")
    assert begun.hear() == "2"
    settled(archive, "task@2", "completed")
    assert [a["end"] for a in attempts(archive, "task@2")] == ["stopped", "exited"]


def test_task_that_had_ended_before_the_signal_keeps_its_outcome(
    archive: AnArchive, managers: Managers, bells: MakeBells
) -> None:
    begun, go = bells("begun"), bells("go")
    managers()
    # It handles the signal by completing: still it was
    # running when the signal came, so it is canceled.
    archive.commit({"obeys": command(f"trap 'exit 0' TERM; echo > {begun.path}; sleep 1000 & wait")})
    begun.hear()
    archive.cancel("obeys@2")
    settled(archive, "obeys@2", "canceled")
    # This one has completed before anybody asks it to stop.
    archive.commit({"ends": command(f"read line < {go.path}")})
    go.ring()
    settled(archive, "ends@3", "completed")
    with pytest.raises(Exception, match="completed already"):
        archive.cancel("ends@3")


# --- What it passes on -----------------------------------------------------------------------------------------------


def test_outputs_become_inputs(archive: AnArchive, managers: Managers) -> None:
    managers()
    archive.commit(
        {
            "count": command("echo pages=12 >> $ARKQUEUE_OUTPUT; echo unit=page >> $ARKQUEUE_OUTPUT"),
            "say": command("cat $ARKQUEUE_INPUTS", depends="[count]"),
        }
    )
    settled(archive, "say@2", "completed")
    assert json.loads(log_of(archive, "say@2")) == {"count": {"pages": "12", "unit": "page"}}
    assert attempts(archive, "count@2")[0]["outputs"] == {"pages": "12", "unit": "page"}


def test_outputs_are_kept_even_on_failure(archive: AnArchive, managers: Managers) -> None:
    managers()
    archive.commit({"task": command("""echo '{"broken": ["a", 1]}' > $ARKQUEUE_OUTPUT; exit 1""")})
    settled(archive, "task@2", "failed")
    assert attempts(archive, "task@2")[0]["outputs"] == {"broken": ["a", 1]}


@pytest.mark.parametrize(
    "hostile",
    [
        "ln -s /etc/shadow $ARKQUEUE_OUTPUT",
        "mkdir $ARKQUEUE_OUTPUT",
        "mkfifo $ARKQUEUE_OUTPUT",
        "truncate -s 1G $ARKQUEUE_OUTPUT",
        "ln -s /dev/zero $ARKQUEUE_OUTPUT",
        'printf \'{"a": "\\\\u0000"}\' > $ARKQUEUE_OUTPUT',
        "printf 'a=\\000b\\n' > $ARKQUEUE_OUTPUT",
        "printf 'a=\\377\\n' > $ARKQUEUE_OUTPUT",
        'printf \'{"a": "\\\\ud800"}\' > $ARKQUEUE_OUTPUT',
        "printf '{\"a\": 1e999999}' > $ARKQUEUE_OUTPUT",
        "rm -rf $PWD/../tree; rmdir $ARKQUEUE_OUTPUT",
    ],
)
def test_hostile_output_harms_nobody(archive: AnArchive, managers: Managers, hostile: str) -> None:
    managers()
    archive.commit({"hostile": command(f"{hostile}; exit 0"), "next": NONE})
    settled(archive, "hostile@2", "completed")
    settled(archive, "next@2", "completed")


# --- What cannot begin -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("command: [no-such-program]", ["no-such-program", "no such command"]),
        ("shell: no-such-shell\nscript: echo", ["no-such-shell", "no such shell"]),
    ],
)
def test_task_that_cannot_begin_says_why_in_its_log(
    archive: AnArchive, managers: Managers, home_folder: Path, fields: str, words: list[str]
) -> None:
    managers()
    archive.commit({"task": NONE + fields, "other": NONE})
    settled(archive, "task@2", "failed")
    settled(archive, "other@2", "completed")
    (attempt,) = attempts(archive, "task@2")
    note = log_of(archive, "task@2", Stream.NOTE)
    assert attempt["end"] == "not-started"
    for word in words:
        assert word in attempt["message"]
        assert word in note
    assert "Traceback" not in note
    assert eventually(lambda: list((home_folder / "work").iterdir()) == [])


def test_archive_that_allows_no_processes_says_how_to_allow_them(archive: AnArchive, managers: Managers) -> None:
    archive.sql("update archive set settings = settings || '{\"process\": false}'")
    managers()
    archive.commit({"task": NONE})
    settled(archive, "task@2", "failed")
    assert "--executor process" in log_of(archive, "task@2", Stream.NOTE)


@pytest.mark.garbles
def test_definition_that_cannot_be_read_fails_alone(archive: AnArchive, managers: Managers) -> None:
    archive.commit({"bad": NONE, "good": NONE + "timeout: 1h\n"})
    archive.sql(
        "update definition set body = body || '{\"command\": 5}' where id = (select definition_id from task where id = %s)",
        archive.task("bad@2"),
    )
    managers()
    settled(archive, "good@2", "completed")
    settled(archive, "bad@2", "failed")
    assert "the definition of the task: cannot be read (command" in log_of(archive, "bad@2")


# --- What it says ----------------------------------------------------------------------------------------------------


def test_log_is_complete_before_the_state_changes(archive: AnArchive, managers: Managers) -> None:
    managers()
    text = "for i in 1 2 3 4 5 6 7 8; do head -c 20000 /dev/zero; printf '\\377\\001' >&2; done"
    keys = [f"t{number}@2" for number in range(8)]
    archive.commit({key.removesuffix("@2"): command(text) for key in keys})
    for key in keys:
        settled(archive, key, "completed")
        (attempt,) = attempts(archive, key)
        page = logs.read(archive.session, AttemptId(attempt["id"]))
        by_stream = {s: b"".join(c.data for c in page.chunks if c.stream is s) for s in (Stream.STDOUT, Stream.STDERR)}
        assert by_stream == {Stream.STDOUT: bytes(160_000), Stream.STDERR: b"\xff\x01" * 8}
        assert page.ended


def test_log_can_be_followed_while_the_task_runs(archive: AnArchive, managers: Managers, bells: MakeBells) -> None:
    go = bells("go")
    managers()
    archive.commit({"task": command(f"echo one; read line < {go.path}; echo two")})
    (attempt,) = eventually(lambda: attempts(archive, "task@2"))
    chunks = follow(logs.Watcher(archive.session, announce), archive.session, AttemptId(attempt["id"]))
    assert next(chunks).data == b"one\n"
    go.ring()
    assert b"".join(c.data for c in chunks) == b"two\n"


@pytest.mark.garbles
def test_archive_whose_settings_cannot_be_read_fails_alone(archive: AnArchive, managers: Managers) -> None:
    """Those of a newer version, say: the other tasks of the same claim run."""
    odd = an_archive(archive.session, "odd")
    for one in (odd, archive):
        one.commit({"task": command("true")})
    odd.sql(
        "update archive set settings = settings || '{\"of-a-newer-version\": 1}' where id = %s returning id", odd.id
    )
    managers()
    settled(archive, "task@2", "completed")
    settled(odd, "task@2", "failed")
    assert "not-started" in {attempt["end"] for attempt in attempts(odd, "task@2")}


def test_endless_output_is_cut_in_the_middle(archive: AnArchive, managers: Managers) -> None:
    managers(log_head="64KiB", log_tail="1MiB")
    archive.commit({"task": command("seq -f %015.0f 1 1250000")})
    settled(archive, "task@2", "completed")
    size, head, tail = 20_000_000, 64 << 10, 1 << 20
    page = logs.read(archive.session, AttemptId(attempts(archive, "task@2")[0]["id"]), limit=1 << 30)
    assert page.size == size
    gaps = [chunk for chunk in page.chunks if chunk.cut]
    assert gaps[0].position - gaps[0].cut == head
    assert size - gaps[0].position <= tail + 4 * CHUNK
    # A small piece of output may still fit in before the tail, with a gap of its own behind it.
    assert tail <= size - gaps[-1].position
    assert page.chunks[-1].data.endswith(b"000000001250000\n")


def test_state_never_shows_before_the_log(archive: AnArchive, managers: Managers) -> None:
    """Someone who looks without pause never finds an ended attempt whose log lacks its last line."""
    managers()
    archive.commit({f"t{number}": command("echo last") for number in range(20)})
    faults: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            rows = archive.sql(
                "select a.id from attempt a where a.ended_at is not null"
                " and not exists (select from log_chunk c where c.attempt_id = a.id)"
            )
            faults.extend(row["id"] for row in rows)

    watcher = threading.Thread(target=look)
    watcher.start()
    for number in range(20):
        ended(archive, f"t{number}@2")
    done.set()
    watcher.join()
    assert faults == []


def test_task_runs_as_the_user_of_its_archive(archive: AnArchive, managers: Managers, home: Path) -> None:
    archive.sql('update archive set settings = settings || \'{"process_user": "nobody"}\'')
    home.chmod(0o711)
    managers(home=home)
    archive.commit(
        {"task": command("id -un; echo $USER; echo mine > file; echo a=1 > $ARKQUEUE_OUTPUT; touch $TMPDIR/x")}
    )
    settled(archive, "task@2", "completed" if os.geteuid() == 0 else "failed")
    if os.geteuid() == 0:
        assert log_of(archive, "task@2") == "nobody\nnobody\n"
        assert attempts(archive, "task@2")[0]["outputs"] == {"a": "1"}
    else:
        assert "cannot use another user" in log_of(archive, "task@2")
