"""Images: the pull policy, users in an image, and the proof that the engine sees this host's
folders.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from arkqueue.errors import ExecutorError
from arkqueue.executor import Container
from arkqueue.model import Pull
from tests.system.executor.docker_bench import Bench


def container(image: str, pull: Pull = Pull.MISSING) -> Container:
    return Container(image, pull, {})


class TestPull:
    @pytest.mark.parametrize("pull", [Pull.MISSING, Pull.NEVER])
    def test_image_that_is_there_is_taken(self, bench: Bench, pull: Pull) -> None:
        digest = bench.executor.image(container(bench.image, pull))

        assert digest == bench.api.inspect_image(bench.image)["Id"]
        assert bench.run("true", image=digest)[0].exit_code == 0

    def test_missing_one_is_not_fetched_where_that_is_forbidden(self, bench: Bench) -> None:
        with pytest.raises(ExecutorError) as raised:
            bench.executor.image(container("arkqueue.invalid/nothing:1", Pull.NEVER))

        assert raised.value.thing == "image 'arkqueue.invalid/nothing:1'"
        assert raised.value.fault == "the engine does not have it, and `pull: never` forbids fetching it"

    @pytest.mark.parametrize("pull", [Pull.MISSING, Pull.ALWAYS])
    @pytest.mark.parametrize("registry", ["arkqueue.invalid", "127.0.0.1:1"])
    def test_registry_that_is_not_reached_is_said(self, bench: Bench, registry: str, pull: Pull) -> None:
        with pytest.raises(ExecutorError) as raised:
            bench.executor.image(container(f"{registry}/nothing:1", pull))

        assert raised.value.fault.startswith("its registry cannot be reached")
        assert raised.value.remedy

    @pytest.mark.parametrize("name", ["Not A Name", "UPPER", "", "a:b:c", "../../x", "-"])
    def test_name_that_is_none_is_said(self, bench: Bench, name: str) -> None:
        with pytest.raises(ExecutorError) as raised:
            bench.executor.image(container(name))

        assert raised.value.thing == f"image {name!r}"
        assert raised.value.remedy


class TestIdentity:
    @pytest.mark.parametrize(
        ("user", "identity"),
        [
            (None, (0, 0)),
            ("root", (0, 0)),
            ("builder", (1000, 100)),
            ("1000", (1000, 100)),
            ("4711", (4711, 0)),
            ("4711:12", (4711, 12)),
            ("builder:staff", (1000, 50)),
            ("nobody:7", (65534, 7)),
        ],
    )
    def test_it_is_what_the_engine_makes_of_it(self, bench: Bench, user: str | None, identity: tuple[int, int]) -> None:
        assert bench.executor.identity(bench.image, user) == identity
        _, recorder = bench.run("id -u; id -g", user=user)
        assert tuple(map(int, recorder.out.split())) == identity

    def test_images_own_user_where_none_is_named(self, bench: Bench, dressed: str) -> None:
        assert bench.executor.identity(dressed, None) == (1000, 100)

    def test_image_without_users_has_numbers(self, bench: Bench, empty_image: str) -> None:
        assert bench.executor.identity(empty_image, None) == (0, 0)
        assert bench.executor.identity(empty_image, "12") == (12, 0)
        with pytest.raises(ExecutorError, match="no such user"):
            bench.executor.identity(empty_image, "builder")

    def test_unknown_group_is_said(self, bench: Bench) -> None:
        with pytest.raises(ExecutorError, match="no group 'strangers'"):
            bench.executor.identity(bench.image, "builder:strangers")


class TestSamePaths:
    def test_folder_that_the_engine_sees(self, bench: Bench, tmp_path: Path) -> None:
        bench.executor.prove_same_paths(tmp_path)

        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("below", "fault"), [("", "it is another folder there"), ("deep", "there is no such folder there")]
    )
    def test_folder_that_only_this_side_has(self, bench: Bench, tmp_path: Path, below: str, fault: str) -> None:
        # A mount that the engine does not have, as in a
        # container whose work folder is not the host's.
        script = (
            "import sys; from pathlib import Path; from arkqueue.errors import ExecutorError\n"
            "from arkqueue.executor.docker.executor import DockerExecutor\n"
            "folder = Path(sys.argv[3]); folder.mkdir(exist_ok=True)\n"
            "executor = DockerExecutor(sys.argv[1], 'bench', sys.argv[2])\n"
            "try: executor.prove_same_paths(folder)\n"
            "except ExecutorError as error: print(error.fault)\n"
            "executor.close()"
        )
        command = ["unshare", "--mount", "sh", "-ec", 'mount -t tmpfs none "$1"; shift; exec "$@"', "sh", str(tmp_path)]
        told = subprocess.run(
            [*command, sys.executable, "-c", script, bench.installation, bench.url, str(tmp_path / below)],
            check=True,
            capture_output=True,
            text=True,
        )

        assert told.stdout.strip() == f"the engine at {bench.url} does not see it under the same path: {fault}"
