"""Tasks in containers that ask for what they cannot have, or leave what nobody wants: each has a
clear end, and the next task runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arkqueue.model import Stream
from tests.builders import AnArchive
from tests.repositories import a_git_repository, a_subversion_repository
from tests.system.executor.registry import Registry
from tests.system.task_manager.boxes import Boxes, boxes
from tests.system.task_manager.conftest import Managers, attempts, log_of, settled
from tests.system.task_manager.test_checkouts import commit, run, watch
from tests.system.task_manager.test_containers import nothing_is_left
from tests.waiting import PATIENCE, eventually

__all__ = ["boxes"]


@pytest.fixture
def manager(boxes: Boxes, managers: Managers, home_folder: Path, tmp_path: Path) -> None:
    home_folder.mkdir()
    later = tmp_path / "later"
    managers(
        **boxes.settings
        | {"mounts": [*boxes.settings["mounts"], {"name": "run", "folder": str(later), "archives": ["*"]}]}
    )
    # The configuration refuses the folder of the engine's socket by itself.
    later.symlink_to(Path(boxes.url.removeprefix("unix://")).parent)


def told(archive: AnArchive, key: str) -> str:
    """Why a task was not started: its attempt and its log say the same."""
    settled(archive, key, "failed")
    (attempt,) = attempts(archive, key)
    assert attempt["end"] in ("not-started", "not-permitted")
    assert log_of(archive, key, Stream.NOTE).endswith(f"not started: {attempt['message']}\n")
    return str(attempt["message"])


# --- What is not allowed ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("manager")
def test_what_is_not_allowed_is_refused_and_a_person_can_allow_it(
    archive: AnArchive, boxes: Boxes, home_folder: Path
) -> None:
    for settings, bad in (
        ({"images": ["team/*"]}, {"image": ({}, "may not use the image")}),
        (
            {"users": ["nobody"]},
            {
                "root": ({"user": "root"}, "may not use the user root, only nobody"),
                "none": ({}, "this task names no user"),
            },
        ),
    ):
        archive.sql("update archive set settings = settings || %s::jsonb", json.dumps(settings))
        archive.commit({name: boxes.task("true", **fields) for name, (fields, _) in bad.items()})
        for name, (_, said) in bad.items():
            assert said in told(archive, f"{name}@{archive.numbers['']}")
        archive.sql("update archive set settings = settings - %s::text[]", list(settings))
    archive.commit({"good": boxes.task("true")})
    settled(archive, "good@4", "completed")
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


@pytest.mark.usefixtures("manager")
def test_what_the_configuration_does_not_grant_is_refused(archive: AnArchive, boxes: Boxes, home_folder: Path) -> None:
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "network": ({"network": "lab"}, "may not use the network lab, only bridge and none"),
        "mount": ({"mounts": [{"name": "others", "path": "/x"}]}, "no mount of this name"),
        "socket": ({"mounts": [{"name": "run", "path": "/x"}]}, "it has the engine's own socket in it"),
    }
    archive.commit({name: boxes.task("true", **fields) for name, (fields, _) in bad.items()})
    for name, (_, said) in bad.items():
        assert said in told(archive, f"{name}@2")
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


# --- What is not there -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("manager")
def test_image_without_a_shell_is_told_for_texts_and_scripts(
    archive: AnArchive, boxes: Boxes, empty_image: str
) -> None:
    script = boxes.task("", script="true", image=empty_image).replace('command: ""\n', "")
    archive.commit({"text": boxes.task("true", image=empty_image), "script": script, "good": boxes.task("true")})
    ends = {}
    for name in ("text", "script"):
        settled(archive, f"{name}@2", "failed")
        ends[name] = attempts(archive, f"{name}@2")[0]["message"]
    assert ends == {
        "text": f"command '/bin/sh': there is no such command in image {empty_image}. "
        "Use an image that has it, or a command as a list, which needs no shell",
        "script": f"shell 'sh': there is no such shell in image {empty_image}. "
        "Use an image that has it, or another `shell`",
    }
    settled(archive, "good@2", "completed")


@pytest.mark.usefixtures("manager")
def test_program_of_a_list_that_is_not_there_is_told(archive: AnArchive, boxes: Boxes) -> None:
    archive.commit({"task": boxes.task(["/nope"])})
    settled(archive, "task@2", "failed")
    assert attempts(archive, "task@2")[0]["message"] == (
        f"command '/nope': there is no such command in image {boxes.image}. Use an image that has it, or another `command`"
    )


@pytest.mark.usefixtures("manager")
def test_unknown_user_names_the_image_as_the_task_does_once_in_the_servers_own_log(
    archive: AnArchive, boxes: Boxes, caplog: pytest.LogCaptureFixture
) -> None:
    archive.sql("select setval('attempt_id', 1000)")  # what people are told counts the task's own
    bad = {"user": ("mallory", "no such user"), "group": ("nobody:band", "no group 'band'")}
    tasks = {name: boxes.task("true", user=user) for name, (user, _) in bad.items()}
    archive.commit({**tasks, "good": boxes.task("false")})
    messages = {}
    for name, (_, said) in bad.items():
        messages[name] = told(archive, f"{name}@2")
        assert said in messages[name]
        assert f"image {boxes.image} has" in messages[name]
    settled(archive, "good@2", "failed")
    assert sorted(one.getMessage() for one in caplog.records if "not started" in one.getMessage()) == sorted(
        f"attempt 1 of papers@2/{name} was not started: {message}" for name, message in messages.items()
    )


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("verb", ["cancel", "restart"])
def test_image_that_a_registry_never_sends_holds_up_no_cancellation(
    archive: AnArchive, boxes: Boxes, home_folder: Path, registry: Registry, verb: str
) -> None:
    registry.hold()
    image = f"{registry.address}/tool:1"
    archive.commit({"task": boxes.task("true", image=image)})
    assert registry.has_held.wait(PATIENCE)
    assert eventually(lambda: log_of(archive, "task@2", Stream.NOTE) == f"image {image} is fetched\n")
    getattr(archive, verb)("task@2")
    eventually(lambda: attempts(archive, "task@2")[0]["ended_at"])
    first = attempts(archive, "task@2")[0]
    assert (first["end"], first["message"]) == (
        "stopped", {"cancel": "not started: it was canceled", "restart": "not started: it is restarted"}[verb]
    )  # fmt: skip
    if verb == "restart":
        archive.cancel("task@2")
    settled(archive, "task@2", "canceled")
    assert eventually(lambda: nothing_is_left(boxes, home_folder))


# --- Where it begins -------------------------------------------------------------------------------------------------

FILES = {"papers/tex/a.tex": "a\n", "paper": "1\n"}


@pytest.mark.usefixtures("manager")
def test_workdir_is_a_folder_of_the_files(archive: AnArchive, boxes: Boxes, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    checkouts: dict[str, str | list[str]] = {"tree": "tree", "copy": "working-copy", "part": ["papers"]}
    tasks = {}
    for name, checkout in checkouts.items():
        tasks[f"begin-{name}"] = boxes.task("pwd; ls", workdir="papers/tex", checkout=checkout)
        tasks[f"missing-{name}"] = boxes.task("true", workdir="papers/text", checkout=checkout)
        tasks[f"file-{name}"] = boxes.task("true", workdir="papers/tex/a.tex", checkout=checkout)
    tasks["made"] = boxes.task("mkdir -p papers/text && cd papers/text && pwd", checkout="tree")
    commit(archive, repository, FILES, tasks)
    for name in checkouts:
        settled(archive, f"begin-{name}@2", "completed")
        assert log_of(archive, f"begin-{name}@2", Stream.STDOUT) == "/workspace/papers/tex\na.tex\n"
        missing, file = (told(archive, f"{what}-{name}@2") for what in ("missing", "file"))
        assert missing.startswith("workdir papers/text: the task's files have no such folder")
        assert file.startswith("workdir papers/tex/a.tex: the task's files have no such folder")
        assert missing.endswith("leave it out and let the task make the folder and go there")
    settled(archive, "made@2", "completed")
    assert log_of(archive, "made@2", Stream.STDOUT) == "/workspace/papers/text\n"


@pytest.mark.usefixtures("manager")
def test_workdir_of_a_process_is_a_folder_of_the_files_too(archive: AnArchive, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    watch(archive, repository)
    begin, missing = (run("basename $PWD; ls", workdir=f"papers/{name}") for name in ("tex", "text"))
    commit(archive, repository, FILES, {"begin": begin, "missing": missing})
    settled(archive, "begin@2", "completed")
    assert log_of(archive, "begin@2") == "tex\na.tex\n"
    assert told(archive, "missing@2").startswith("workdir papers/text: the task's files have no such folder")


@pytest.mark.usefixtures("manager")
def test_workdir_through_a_symlink_is_the_containers(archive: AnArchive, boxes: Boxes, tmp_path: Path) -> None:
    from tests.repositories import Link

    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    files = {**FILES, "inside": Link("papers"), "outside": Link("/shared")}
    tasks = {name: boxes.task("pwd -P", workdir=folder, checkout="tree") for name, folder in (("inside", "inside/tex"), ("outside", "outside"))}  # fmt: skip
    commit(archive, repository, files, tasks)
    for name, folder in (("inside", "/workspace/papers/tex"), ("outside", "/shared")):
        settled(archive, f"{name}@2", "completed")
        assert log_of(archive, f"{name}@2", Stream.STDOUT) == f"{folder}\n"


@pytest.mark.usefixtures("manager")
def test_absolute_workdir_is_a_folder_of_the_container(archive: AnArchive, boxes: Boxes) -> None:
    (boxes.shared / "sub").mkdir()
    folders = ("/", "/bin/", "/shared/sub", "/fast", "/arkqueue", "/dev")
    given = {"resources": {"tmpfs": {"/fast": "1MiB"}}}
    archive.commit({f"t{n}": boxes.task("pwd", workdir=folder, **given) for n, folder in enumerate(folders)})
    for n, folder in enumerate(folders):
        settled(archive, f"t{n}@2", "completed")
        assert log_of(archive, f"t{n}@2") == f"{folder.rstrip('/') or '/'}\n"


@pytest.mark.usefixtures("manager")
def test_absolute_workdir_that_is_not_there_is_told(archive: AnArchive, boxes: Boxes) -> None:
    cases = (
        ("/nope", "has no such folder"),
        ("/tmp/nope/deep", "has no such folder"),
        ("/bin/sh", "is not a directory"),
        ("/etc/passwd/x", "not a directory"),
        ("/workspace/nope", "the task's files have no such folder"),
    )
    archive.commit({f"t{n}": boxes.task("true", workdir=folder) for n, (folder, _) in enumerate(cases)})
    for n, (folder, said) in enumerate(cases):
        message = told(archive, f"t{n}@2")
        assert message.startswith(f"workdir {folder}: ")
        assert said in message


# --- What it leaves --------------------------------------------------------------------------------------------------

HOSTILE = """
printf '[core]\\nfsmonitor = touch /shared/owned\\nhooksPath = /workspace/hooks\\n[include]\\npath = /etc/passwd\\n' > .git/config
mkdir hooks; for name in post-checkout pre-push fsmonitor; do printf '#!/bin/sh\\ntouch /shared/owned\\n' > hooks/$name; chmod +x hooks/$name; cp hooks/$name .git/hooks/; done
rm -rf .git/objects; ln -s / .git/objects; mknod .git/device b 8 0; chmod 000 .git/refs
"""


@pytest.mark.usefixtures("manager")
def test_hostile_working_copy_harms_neither_the_next_nor_the_archive(
    archive: AnArchive, boxes: Boxes, home_folder: Path, tmp_path: Path
) -> None:
    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    hostile = boxes.task(HOSTILE, checkout="working-copy")
    after = (
        boxes.task("ls; grep -c shared .git/config", checkout="working-copy")
        + "depends: [{task: hostile, when: settled}]\n"
    )
    commit(archive, repository, FILES, {"hostile": hostile, "after": after})
    settled(archive, "after@2", "failed")  # by grep, which finds nothing
    assert archive.states()["hostile@2"] == "completed"
    assert log_of(archive, "after@2", Stream.STDOUT) == "paper\npapers\n0\n"
    assert eventually(lambda: nothing_is_left(boxes, home_folder))
    assert not (boxes.shared / "owned").exists()


@pytest.mark.usefixtures("manager")
def test_user_writes_the_files_of_a_tree(archive: AnArchive, boxes: Boxes, home_folder: Path, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    watch(archive, repository)
    text = "id -u; echo more >> paper; rm -r papers; mkdir new; echo x > new/x; cat paper; ls"
    tasks = {"nobody": boxes.task(text, user="nobody", checkout="tree"), "root": boxes.task(text, checkout="tree")}
    commit(archive, repository, FILES, tasks)
    for name, number in (("nobody", 65534), ("root", 0)):
        settled(archive, f"{name}@2", "completed")
        assert log_of(archive, f"{name}@2", Stream.STDOUT) == f"{number}\n1\nmore\nnew\npaper\n"
    assert eventually(lambda: nothing_is_left(boxes, home_folder))
