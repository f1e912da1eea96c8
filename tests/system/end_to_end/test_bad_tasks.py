"""Tasks that cannot start, write what they should not, or fill the disk: each is told with the
thing, the fault and the remedy.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.requirements import a_mount
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, tasks
from tests.waiting import eventually


def test_programs_that_do_not_exist_are_named(shared: Installation, archives: Archives) -> None:
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "command": ({"command": ["no-such-program", "x"]}, "no-such-program"),
        "shell": ({"script": "echo hello\n", "shell": "no-such-shell"}, "no-such-shell"),
        "in-a-shell": ({"command": "no-such-program x"}, "exit code 127"),
        "folder": ({"command": ["/"]}, "/"),
    }
    papers = archives(shared)
    papers.commit(tasks({name: fields for name, (fields, _) in bad.items()} | {"other": {"command": "true"}}))
    papers.wait_for_run(2, "failed")
    assert papers.states(2) == {f"{name}@2": "failed" for name in bad} | {"other@2": "completed"}
    for name, (_, word) in bad.items():
        said = shared("show", papers.task(f"{name}@2")).out + papers.explained(f"{name}@2")
        assert word in said
        assert f"arkqueue retry {papers.task(f'{name}@2')}" in said


def test_user_that_does_not_exist_is_named(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    # It was there when it was set.
    shared.sql(
        'update archive set settings = settings || \'{"process_user": "no-such-user"}\' where name = %s', papers.name
    )
    papers.commit(tasks({"task": {"command": "true"}}))
    papers.wait_for_run(2, "failed")
    assert "no-such-user" in papers.explained("task@2")


def test_output_that_is_not_utf_8_is_kept_and_shown(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    papers.commit(tasks({"task": {"command": r"printf 'caf\351 \000 \033[31mred\n'; printf '\377' >&2"}}))
    papers.wait_for_run(2)
    shown = papers.log("task@2")
    assert "caf\\xe9" in shown
    assert "\x1b" not in shown
    assert "\0" not in shown
    chunks = json.loads(papers.log("task@2", "--json"))["chunks"]
    written = {
        stream: b"".join(base64.b64decode(c["data"]) for c in chunks if c["stream"] == stream)
        for stream in ("stdout", "stderr")
    }
    assert written == {"stdout": b"caf\xe9 \0 \x1b[31mred\n", "stderr": b"\xff"}


@pytest.mark.full
def test_200_mb_of_output_keep_head_and_tail_and_mark_the_cut(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    line = "x" * 99
    papers.commit(tasks({"task": {"command": f"echo first; yes {line} | head -n 2000000; echo last"}}))
    papers.wait_for_run(2)
    (attempt,) = papers.attempts("task@2")
    assert attempt["log_bytes"] == 200_000_000 + len("first\nlast\n")
    kept = shared.sql(
        "select coalesce(sum(length(data)), 0)::int as n from log_chunk where attempt_id = %s", attempt["id"]
    )
    lines = papers.log("task@2").splitlines()
    assert (lines[0], lines[-1]) == ("first", "last")
    cut = [line for line in lines if "bytes are missing here: the log was too long" in line]
    assert len(cut) == 1
    # Head and tail are kept in whole chunks.
    assert kept[0]["n"] + (1 << 18) >= 16 << 20
    assert kept[0]["n"] <= (16 << 20) + (1 << 20)


def test_outputs_that_are_none_are_told_and_not_read(shared: Installation, archives: Archives) -> None:
    bad = {
        "symlink": ("ln -s /etc/shadow $ARKQUEUE_OUTPUT", "symlink"),
        "folder": ("mkdir $ARKQUEUE_OUTPUT", "directory"),
        "fifo": ("mkfifo $ARKQUEUE_OUTPUT", "fifo"),
        "1-GB": ("truncate -s 1G $ARKQUEUE_OUTPUT", "1073741824 bytes"),
        "not-UTF-8": ("printf 'caf\\351=1' > $ARKQUEUE_OUTPUT", "not UTF-8"),
        "nonsense": ("echo nonsense > $ARKQUEUE_OUTPUT", "key=value"),
    }
    papers = archives(shared)
    papers.commit(
        tasks(
            {name: {"command": command} for name, (command, _) in bad.items()}
            | {"next": {"depends": list(bad), "command": "cat $ARKQUEUE_INPUTS"}}
        )
    )
    papers.wait_for_run(2)
    for name, (_, word) in bad.items():
        said = shared("show", papers.task(f"{name}@2"), "--json").out
        shown = json.loads(said)
        assert "OUTPUT" in shown["message"]
        assert word in shown["message"]
        assert shown["history"][0]["outputs"] is None
        assert shown["message"] in papers.log(f"{name}@2")
        assert "root:" not in said
    assert "root:" not in papers.log("next@2")


def test_timeout_ends_the_whole_tree_and_is_told(shared: Installation, archives: Archives) -> None:
    papers = archives(shared)
    command = "setsid sleep 1000 & trap '' TERM; sleep 1000"
    papers.commit(tasks({"task": {"command": command, "timeout": "0.3s", "grace": "0.1s"}}))
    papers.wait_for_run(2, "failed")
    assert "timed out" in shared("show", papers.task("task@2")).out


def test_exit_codes_65_and_75_reject_and_defer(shared: Installation, archives: Archives, tmp_path: Path) -> None:
    papers = archives(shared)
    soon = "echo arkqueue.retry_after=1 > $ARKQUEUE_OUTPUT"
    later = f"test -e {tmp_path}/later || {{ touch {tmp_path}/later; {soon}; exit 75; }}"
    papers.commit(
        tasks(
            {
                "wrong": {"command": "exit 65", "retries": 3},
                "later": {"command": later},
                "again": {"command": "test $ARKQUEUE_ATTEMPT = 3", "retries": {"max": 2, "delay": "0.1s"}},
            }
        )
    )
    papers.wait_for_run(2, "failed")
    assert papers.states(2) == {"wrong@2": "rejected", "later@2": "completed", "again@2": "completed"}
    assert [len(papers.attempts(f"{name}@2")) for name in ("wrong", "later", "again")] == [1, 2, 3]


# A full disk


@pytest.fixture
def cramped(installations: Installations, tmp_path: Path) -> Any:
    """An installation whose task manager has its workspaces, and the bases below them, on disks of 1 MiB."""
    arkqueue = installations(folder=tmp_path / "small")
    with ExitStack() as mounted:
        for name in ("work", "bases"):
            folder = arkqueue.home() / name
            folder.mkdir(mode=0o711)
            mounted.enter_context(a_mount("-t", "tmpfs", "-o", "size=1m", "arkqueue-test", folder))
        yield arkqueue
        arkqueue.close()


def test_full_disk_is_named_with_what_helps_and_waited_for(cramped: Installation, archives: Archives) -> None:
    cramped.start()
    papers = archives(cramped)
    papers.commit(
        tasks({"none": {"command": "true", "checkout": "none"}, "tree": {"command": "true"}})
        | {"big.bin": os.urandom(3 << 20)}
    )
    explained = eventually(lambda: "No space left on device" in (said := papers.explained("tree@2")) and said)
    assert str(cramped.home() / "bases") in explained
    assert "Free space there" in explained
    eventually(lambda: papers.states(2)["none@2"] == "completed")
    subprocess.run(["mount", "-o", "remount,size=64m", str(cramped.home() / "bases")], check=True)
    papers.wait_for_run(2)


def test_task_that_fills_the_disk_itself_fails_alone(cramped: Installation, archives: Archives) -> None:
    cramped.start()
    papers = archives(cramped)
    fill = 'head -c 10000000 /dev/zero > big; head -c 100000 /dev/zero > "$ARKQUEUE_OUTPUT"; exit 1'
    papers.commit(tasks({"fills": {"command": fill}, "next": {"depends": [{"task": "fills", "when": "settled"}], "command": "echo room"}}))  # fmt: skip
    papers.wait_for_run(2, "failed")
    assert papers.states(2) == {"fills@2": "failed", "next@2": "completed"}
    assert "No space left on device" in papers.log("fills@2")
