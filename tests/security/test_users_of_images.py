"""A committer who also makes the image tries to become root by a user whose name is allowed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import docker
import pytest

from tests.engine import busybox_files, import_image, label
from tests.security.conftest import Site
from tests.system.end_to_end.installation import Archive, tasks

Images = Callable[[str, str], str]


@pytest.fixture
def images(request: pytest.FixtureRequest, engine: docker.APIClient) -> Iterator[Images]:
    """Makes images with users and groups of the test's own."""
    made: list[str] = []

    def make(users: str, groups: str) -> str:
        (run,) = label(request.config).values()
        made.append(import_image(engine, f"{run}/{uuid.uuid4().hex}", busybox_files(users, groups), [], run))
        return made[-1]

    yield make
    for image in made:
        engine.remove_image(image, force=True)


@pytest.fixture
def hers(site_with_containers: Site) -> Archive:
    allowed = ("evil", "nobody", "1000", "4711", "2000:*", "crew:staff", "staffed")
    return site_with_containers.archive("git", *(word for user in allowed for word in ("--allow-user", user)))


def test_i_am_allowed_by_name_and_my_image_says_that_i_am_root(
    site_with_containers: Site, hers: Archive, images: Images
) -> None:
    root = "root:x:0:0::/:/bin/sh\n"
    attacks = {
        "plainly": ("evil", f"{root}evil:x:0:0::/:/bin/sh\n", ""),
        "by-no-number": ("evil", f"{root}evil:x:zero:7::/:/bin/sh\nevil:x:1000:1000::/:/bin/sh\n", ""),
        "by-a-short-line": ("evil", f"{root}evil\nevil:x:1000:1000::/:/bin/sh\n", ""),
        "by-a-number-as-name": ("evil", f"{root}evil:x:+0:7::/:/bin/sh\n", ""),
        "by-the-group": ("evil", f"{root}evil:x:1000:0::/:/bin/sh\n", ""),
        "by-a-further-group": ("evil", f"{root}evil:x:1000:7::/:/bin/sh\n", "wheel:x:0:evil\n"),
        "by-no-entry": ("4711", root, ""),
        "by-the-groups-name": ("crew:staff", f"{root}crew:x:1000:7::/:/bin/sh\n", "staff:x:0:\n"),
    }
    show = {"command": "id -u; id -G", "network": "none", "checkout": "none"}
    known = {name: images(users, groups) for name, (_, users, groups) in attacks.items()}
    fields = {name: {**show, "image": known[name], "user": user} for name, (user, _, _) in attacks.items()}
    hers.commit(tasks(fields))
    for name in attacks:
        hers.wait(f"{name}@2", "failed")
        log = hers.log(f"{name}@2")
        assert "its tasks may not be root" in log or "its tasks may not have root's group" in log
        assert known[name] in log
    site_with_containers.answers()


def test_whoever_is_allowed_runs_with_the_groups_that_were_judged(hers: Archive, images: Images) -> None:
    image = images(
        "1000:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\nthey:x:1000:100::/:/bin/sh\n",
        "more:x:200:they\nstaff:x:50:nobody\n",
    )
    show = {"command": "echo $(id -u) $(id -G)", "network": "none", "checkout": "none", "image": image}
    users = {"name": "nobody", "number": "1000", "groups": "2000:0"}
    hers.commit(tasks({name: {**show, "user": user} for name, user in users.items()}))
    said = {}
    for name in users:
        hers.wait(f"{name}@2")
        said[name] = hers.log(f"{name}@2").split()
    assert {name: (words[0], *sorted(set(words[1:]))) for name, words in said.items()} == {
        "name": ("65534", "50", "65534"),
        "number": ("1000", "100", "200"),
        "groups": ("2000", "0"),
    }
