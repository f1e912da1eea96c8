"""Names of locks with fields (design 5.25) through the whole installation: what one task prints is
the lock of the next.
"""

from __future__ import annotations

from tests.system.end_to_end.conftest import Archives
from tests.system.end_to_end.installation import Installation, Stage, tasks
from tests.waiting import eventually


def test_tasks_take_turns_at_the_lock_that_an_output_names(
    shared: Installation, archives: Archives, stage: Stage
) -> None:
    """Two of three tasks store the same volume: these take turns, and the third waits for neither."""
    papers = archives(shared)
    volumes = {"a": "13030-m5", "b": "13030-m5", "c": "13030-q2"}
    mint = {f"mint-{name}": _mint(ark) for name, ark in volumes.items()}
    store = {
        f"store-{name}": {
            "command": stage.held,
            "checkout": "none",
            "depends": [f"mint-{name}"],
            "lock": f"storage/${{{{ needs.mint-{name}.ark }}}}",
        }
        for name in volumes
    }
    papers.commit(tasks(mint | store))
    for name in volumes:
        papers.wait(f"mint-{name}@2")
    stage.begun("store-c@2")
    eventually(lambda: {papers.state("store-a@2"), papers.state("store-b@2")} == {"running", "waiting"})
    (waiting,) = (name for name in "ab" if papers.state(f"store-{name}@2") == "waiting")
    (holder,) = {"a", "b"} - {waiting}
    stage.begun(f"store-{holder}@2")
    assert f"waits for the lock {papers.name}/storage/13030-m5" in papers.explained(f"store-{waiting}@2")
    listed = shared("lock", "list").out
    assert f"{papers.name}/storage/13030-m5" in listed
    assert f"{papers.name}/storage/13030-q2" in listed
    stage.go(f"store-{holder}@2")
    stage.begun(f"store-{waiting}@2")
    stage.go()
    papers.wait_for_run(2)


def _mint(ark: str) -> dict[str, str]:
    return {"command": f"echo ark={ark} > $ARKQUEUE_OUTPUT", "checkout": "none"}
