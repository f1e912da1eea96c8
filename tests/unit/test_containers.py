"""From a task's words to its container: what is granted, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.errors import Forbidden, NotPermitted
from arkqueue.executor import Container, Mount
from arkqueue.model import AttemptId, Pull, Resources, TaskDefinition, TaskId
from arkqueue.task_manager.containers import WORKSPACE, Identity, check_account, container_for, working_folder
from tests.builders import a_workflow

OPEN = ArchiveSettings()
PROCESS = ArchiveSettings(process=True)
IDENTITY = Identity("0123", "host-1", "papers@12", "papers@12/index", TaskId(5), AttemptId(7))
MOUNTS = """
[[mounts]]
name = "index"
folder = "/srv/papers"
archives = ["papers"]
[[mounts]]
name = "index"
folder = "/srv/others"
archives = ["*"]
read_only = true
[[mounts]]
name = "cache"
volume = "cache"
archives = ["book*"]
"""


def a_task(fields: str = "") -> TaskDefinition:
    (task,) = a_workflow({"index": fields}).tasks
    return task


def a_configuration(tmp_path: Path, text: str = "") -> Configuration:
    file = tmp_path / "arkqueue.toml"
    file.write_text(text, "utf-8")
    return Configuration.load({}, file=file, home=tmp_path / "home")


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return a_configuration(tmp_path, MOUNTS)


def contained(
    configuration: Configuration, fields: str, settings: ArchiveSettings = OPEN, archive: str = "papers"
) -> Container:
    found = container_for(a_task(fields), settings, archive, configuration, IDENTITY)
    assert found is not None
    return found


def refused(
    configuration: Configuration, fields: str, settings: ArchiveSettings = OPEN, archive: str = "papers"
) -> str:
    with pytest.raises(Forbidden) as caught:
        container_for(a_task(fields), settings, archive, configuration, IDENTITY)
    assert caught.value.remedy
    is_of_settings = not caught.value.thing.startswith(("mount ", "resources."))
    assert isinstance(caught.value, NotPermitted) == is_of_settings, "the host's configuration is no setting"
    return str(caught.value)


def test_container_says_whose_it_is_and_has_the_defaults(configuration: Configuration) -> None:
    assert contained(configuration, "image: debian:12") == Container(
        image="debian:12",
        pull=Pull.MISSING,
        labels={
            "arkqueue.installation": "0123",
            "arkqueue.host": "host-1",
            "arkqueue.archive": "papers",
            "arkqueue.run": "papers@12",
            "arkqueue.task": "papers@12/index",
            "arkqueue.task-id": "5",
            "arkqueue.attempt": "7",
        },
        network="bridge",
        resources=Resources(pids=4096),
    )


def test_task_without_image_runs_in_the_archives_own_else_as_a_process(configuration: Configuration) -> None:
    default = ArchiveSettings(image="arkqueue/default", process=True)
    assert contained(configuration, "", default).image == "arkqueue/default"
    assert contained(configuration, "image: tool", default).image == "tool"
    assert container_for(a_task(), PROCESS, "papers", configuration, IDENTITY) is None
    said = refused(configuration, "")
    assert "archive papers: its tasks may not run as processes on a task manager's host" in said
    assert "arkqueue archive set papers --image IMAGE" in said
    assert "arkqueue archive set papers --executor process" in said


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ("mounts: [index]", "mounts"),
        ("resources: {memory: 64MiB}", "resources"),
        ("network: none", "network"),
        ("user: nobody", "user"),
        ("workdir: /opt", "an absolute workdir"),
        ("network: none\nuser: nobody\nmounts: [index]", "mounts, network and user"),
    ],
)
def test_process_cannot_have_what_only_a_container_has(configuration: Configuration, fields: str, word: str) -> None:
    assert f"task index: it asks for {word}, which only a container has" in refused(configuration, fields, PROCESS)
    contained(configuration, f"image: tool\n{fields}", PROCESS)


def test_pull_is_the_tasks_own_or_the_configurations(tmp_path: Path) -> None:
    never = a_configuration(tmp_path, '[docker]\npull = "never"\n')
    assert contained(never, "image: tool").pull is Pull.NEVER
    assert contained(never, "image: {name: tool, pull: always}").pull is Pull.ALWAYS


@pytest.mark.parametrize(
    ("globs", "allowed", "others"),
    [
        (("debian",), ["debian", "debian:12", f"debian@sha256:{'0' * 64}"], ["debian/x", "debian:5000/x", "xdebian"]),
        (("debian:12",), ["debian:12"], ["debian", "debian:11", f"debian:12@sha256:{'0' * 64}"]),
        (("team/*",), ["team/a", "team/b:1"], ["team/a/b", "a", "registry.example.org/team/a"]),
        (("registry.example.org/**",), ["registry.example.org/a/b:1"], ["registry.example.org:5000/a", "a"]),
        (("a", "b:*"), ["a", "b:1"], ["b", "c"]),
    ],
)
def test_image_is_one_that_the_archive_allows(
    configuration: Configuration, globs: tuple[str, ...], allowed: list[str], others: list[str]
) -> None:
    settings = ArchiveSettings(images=globs)
    for image in allowed:
        assert contained(configuration, f"image: {image}", settings).image == image
    for image in others:
        said = refused(configuration, f"image: {image}", settings)
        assert f"archive papers: its tasks may not use the image {image}, only {globs[0]}" in said
        assert said.endswith(f"--allow-image {image}")


def test_refusal_names_the_whole_command_as_a_setting_is_replaced(configuration: Configuration) -> None:
    said = refused(configuration, "image: c", ArchiveSettings(images=("a", "b:*")))
    assert "only a and b:*" in said
    assert "arkqueue archive set papers --allow-image a --allow-image 'b:*' --allow-image c" in said


def test_default_image_needs_no_further_word(configuration: Configuration) -> None:
    settings = ArchiveSettings(image="arkqueue/default", images=("debian",))
    assert contained(configuration, "", settings).image == "arkqueue/default"
    assert contained(configuration, "image: arkqueue/default", settings).image == "arkqueue/default"


def test_user_is_one_that_the_archive_allows(configuration: Configuration) -> None:
    for user in ("root", "0:0", "nobody"):
        contained(configuration, f"image: tool\nuser: '{user}'")
    settings = ArchiveSettings(users=("build*", "1000:1000", "2000:*"))
    for user in ("builder", "1000:1000", "2000:5"):
        contained(configuration, f"image: tool\nuser: '{user}'", settings)
    for user in ("root", "builder:root", "1000", "1000:0", "2000"):
        assert f"may not use the user {user}" in refused(configuration, f"image: tool\nuser: '{user}'", settings)


def test_where_users_are_limited_a_task_cannot_leave_it_to_the_image(configuration: Configuration) -> None:
    assert "this task names no user" in refused(configuration, "image: tool", ArchiveSettings(users=("1000",)))


@pytest.mark.parametrize(
    ("globs", "user", "uid", "gid", "is_allowed"),
    [
        # No glob allows root with its group: two that allow one part each do not add up.
        (("evil*", "*:1000", "1*:0"), "evil", 0, 0, False),
        (("evil*", "*:1000", "1*:0"), "evil", 0, 1000, True),
        (("evil*", "*:1000"), "evil", 7, 0, False),
        (("*:staff",), "evil:staff", 0, 50, True),
        (("*:staff",), "evil:staff", 0, 0, False),
        (("evil", "root:0"), "evil", 0, 0, True),
        (("evil", "root"), "evil", 0, 5, True),
        (("1*:0",), "1000:0", 1000, 0, True),
    ],
)
def test_who_a_user_is_by_the_image_is_allowed_by_one_glob(
    globs: tuple[str, ...], user: str, uid: int, gid: int, is_allowed: bool
) -> None:
    settings = ArchiveSettings(users=globs)
    if is_allowed:
        check_account(user, uid, gid, (), "img", settings, "papers")
    else:
        with pytest.raises(Forbidden, match="may not"):
            check_account(user, uid, gid, (), "img", settings, "papers")


def test_network_is_one_that_the_archive_allows(configuration: Configuration) -> None:
    for network in ("bridge", "none"):
        assert contained(configuration, f"image: tool\nnetwork: {network}").network == network
    said = refused(configuration, "image: tool\nnetwork: lab")
    assert "may not use the network lab, only bridge and none" in said
    assert "--allow-network bridge --allow-network lab" in said
    lab = ArchiveSettings(networks=("lab*",))
    assert contained(configuration, "image: tool\nnetwork: lab2", lab).network == "lab2"
    assert contained(configuration, "image: tool\nnetwork: none", lab).network == "none"


def test_where_networks_are_limited_a_task_gets_no_other_by_silence(configuration: Configuration) -> None:
    said = refused(configuration, "image: tool", ArchiveSettings(networks=("lab",)))
    assert "may not use the network bridge, which is what a task gets that names none, only lab and none" in said


def test_mount_is_the_first_that_is_for_the_archive(configuration: Configuration) -> None:
    task = "image: tool\nmounts: [index, {name: index, path: /ro, read_only: true}]"
    assert contained(configuration, task).mounts == (
        Mount("/mnt/index", Path("/srv/papers")),
        Mount("/ro", Path("/srv/papers"), read_only=True),
    )
    assert contained(configuration, task, archive="book").mounts == (
        Mount("/mnt/index", Path("/srv/others"), read_only=True),
        Mount("/ro", Path("/srv/others"), read_only=True),
    )
    assert contained(configuration, "image: tool\nmounts: cache", archive="book2").mounts == (
        Mount("/mnt/cache", "cache"),
    )


def test_mount_that_is_not_granted_or_not_known_is_refused(configuration: Configuration) -> None:
    said = refused(configuration, "image: tool\nmounts: cache")
    assert "mount cache: the configuration of this host does not grant it to archive papers" in said
    said = refused(configuration, "image: tool\nmounts: indx")
    assert "mount indx: the configuration of this host has no mount of this name (did you mean index?)" in said
    assert "did you mean" not in refused(configuration, "image: tool\nmounts: cachee")


LIMITS = '[docker]\ncpu = 1.5\nmemory = "512MiB"\npids = 100\nmost_cpu = 4\nmost_memory = "1GiB"\nmost_pids = 1000\n'


@pytest.mark.parametrize(
    ("text", "asked", "given"),
    [
        ("", "{}", Resources(pids=4096)),
        ("", "{cpu: 64, memory: 1024GiB, pids: 100000}", Resources(64, 1 << 40, 100_000)),
        (LIMITS, "{}", Resources(1.5, 512 << 20, 100)),
        (LIMITS, "{cpu: 4, memory: 1GiB, pids: 1000}", Resources(4, 1 << 30, 1000)),
        (LIMITS, "{cpu: 0.1, memory: 6MiB, pids: 1}", Resources(0.1, 6 << 20, 1)),
        ("[docker]\nmost_cpu = 2\nmost_memory = '1GiB'\nmost_pids = 50", "{}", Resources(2, 1 << 30, 50)),
        ("", "{shm: 1MiB, tmpfs: {/tmp: 1MiB}, read_only: true}", Resources(None, None, 4096, 1 << 20, {"/tmp": 1 << 20}, True)),
    ],
)  # fmt: skip
def test_limits_are_the_tasks_within_the_configurations(
    tmp_path: Path, text: str, asked: str, given: Resources
) -> None:
    assert contained(a_configuration(tmp_path, text), f"image: tool\nresources: {asked}").resources == given


@pytest.mark.parametrize(
    ("asked", "fault"),
    [
        ("{cpu: 4.5}", "resources.cpu: the task asks for 4.5, and the configuration of this host gives at most 4"),
        ("{memory: 1025MiB}", "resources.memory: the task asks for 1025MiB, and the configuration of this host gives at most 1GiB"),
        ("{pids: 1001}", "resources.pids: the task asks for 1001, and the configuration of this host gives at most 1000"),
    ],
)  # fmt: skip
def test_more_than_the_most_is_refused(tmp_path: Path, asked: str, fault: str) -> None:
    assert fault in refused(a_configuration(tmp_path, LIMITS), f"image: tool\nresources: {asked}")


@pytest.mark.parametrize(
    ("fields", "folder"),
    [
        ("", "/workspace"),
        ("workdir: a/./b/", "/workspace/a/b"),
        ("workdir: /opt/", "/opt"),
        ("workdir: .", "/workspace"),
    ],
)
def test_working_folder_is_of_the_workspace_unless_absolute(fields: str, folder: str) -> None:
    assert working_folder(a_task(fields), WORKSPACE) == Path(folder)


def test_settings_as_they_are_stored_will_do(configuration: Configuration) -> None:
    stored: dict[str, Any] = {"images": ["tool"], "users": ["1000"], "networks": ["bridge"]}
    contained(configuration, "image: tool:1\nuser: 1000", ArchiveSettings(**stored))
    refused(configuration, "image: other\nuser: 1000", ArchiveSettings(**stored))


def test_image_of_the_installation_is_for_tasks_that_could_not_run_otherwise(tmp_path: Path) -> None:
    configuration = a_configuration(tmp_path, '[docker]\nimage = "arkqueue/default"\n')
    assert contained(configuration, "command: make").image == "arkqueue/default"
    assert contained(configuration, "command: make", ArchiveSettings(images=("python",))).image == "arkqueue/default"
    assert contained(configuration, "command: make", ArchiveSettings(image="tex")).image == "tex"
    assert contained(configuration, "command: make\nimage: python", ArchiveSettings(process=True)).image == "python"
    assert container_for(a_task("command: make"), PROCESS, "papers", configuration, IDENTITY) is None
    with pytest.raises(Forbidden, match="the image arkqueue/default"):
        contained(configuration, "command: make\nimage: arkqueue/default", ArchiveSettings(images=("python",)))
