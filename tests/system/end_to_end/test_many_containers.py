"""Many tasks in containers, ``make test-long`` hundreds, through all of arkqueue: commits, the
queue, four slots, layers over shared bases, a real engine. Nothing of them is left.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine import OwnEngine, busybox_files, client, import_image
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import Installation, tasks
from tests.waiting import eventually

SLOTS = 4

# Alone on its revision's files, whoever else has them, it leaves what only root can remove.
COMMAND = (
    'test "$(cat paper.tex)" = "thoughts $ARKQUEUE_NUMBER" && echo mine >> paper.tex && rm -r old '
    "&& mkdir -p own/deep && mkfifo own/pipe && touch own/file && chmod 000 own && echo answer=42 > $ARKQUEUE_OUTPUT"
)


def what_is_left(arkqueue: Installation, engine: OwnEngine) -> list[str]:
    """All that the engine has; mounts that name the home, as an overlay over a base does; all files of the home but the bases. The workspaces are gone by then."""
    home = arkqueue.home()
    eventually(lambda: not list((home / "work").iterdir()), lambda: list((home / "work").iterdir()))
    api = client(engine.url)
    try:
        return [
            *(f"container {one['Names']}" for one in api.containers(all=True)),
            *(f"volume {one['Name']}" for one in api.volumes()["Volumes"] or ()),
            *(f"network {one['Name']}" for one in api.networks()),
            *(f"image {one['Id']}" for one in api.images(all=True)),
            *(f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(home) in line),
            *sorted(str(path) for path in home.rglob("*") if home / "bases" not in path.parents),
        ]
    finally:
        api.close()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("revisions", "width"),
    [pytest.param(3, 8, marks=pytest.mark.full), pytest.param(10, 50, marks=pytest.mark.long)],
)
def test_many_tasks_in_containers_leave_nothing(
    installations: Installations, archives: Archives, own_engine: Callable[[], OwnEngine], revisions: int, width: int
) -> None:
    """On an engine of its own: so all that is on it counts, labelled or not. And Docker 20.10 can freeze for good when containers end at once (moby issue
    46661): a network is left then, which also ``none`` is. So it takes no other test with it.
    """
    engine = own_engine()
    api = client(engine.url)
    image = import_image(api, "busybox", busybox_files(), [], "many")
    api.close()
    arkqueue = installations(docker={"host": engine.url}, slots=SLOTS)
    server = arkqueue.start()
    papers = archives(arkqueue)
    task = {"command": COMMAND, "image": image, "network": "none"}
    papers.commit({"paper.tex": "thoughts 2", "old/notes": "old"} | tasks({"first": task}))
    papers.wait_for_run(2)
    before = what_is_left(arkqueue, engine)
    assert not [line for line in before if line.startswith(("container", "volume", "mount"))]

    names = [f"t{number}" for number in range(width)]
    first = papers.commit({"paper.tex": "thoughts 3"} | tasks(dict.fromkeys(names, task)))
    for number in range(first + 1, first + revisions):
        papers.commit({"paper.tex": f"thoughts {number}"})
    for number in range(first, first + revisions):
        for name in names:
            papers.wait(f"{name}@{number}")

    eventually(lambda: what_is_left(arkqueue, engine) == before, lambda: what_is_left(arkqueue, engine))
    (row,) = arkqueue.sql("select count(*) as n from attempt where image is not null and outputs is not null")
    assert row["n"] == 1 + revisions * width
    assert len(list((server.home / "bases").iterdir())) <= SLOTS
