"""`arkqueue purge` on a host whose server is stopped: its embedded database runs for the command
alone.
"""

from __future__ import annotations

from pathlib import Path

from arkqueue.db.embedded.server import Embedded
from tests.system.end_to_end.conftest import Archives, Installations
from tests.system.end_to_end.installation import processes_of, tasks

SECRET = "hunter2-is-the-password"


def test_a_secret_and_a_run_are_purged_while_every_role_and_the_embedded_database_are_down(
    home: Path, installations: Installations, archives: Archives
) -> None:
    home.chmod(0o711)  # or PostgreSQL's account could not pass through it to the home folder proper
    arkqueue = installations(folder=home, database=None)
    server = arkqueue.start()
    papers = archives(arkqueue)
    papers.commit(tasks({"leak": {"command": "echo hunter2-is-the-password", "checkout": "none"}}))
    papers.commit({"paper.tex": "second thoughts\n"})
    for rev in (2, 3):
        papers.wait_for_run(rev)
    assert SECRET in papers.log("leak@3")
    server.stop()
    assert processes_of(str(home)) == []
    assert Embedded(arkqueue.home()).pid is None

    removed = arkqueue("purge", papers.task("leak@3"), "--log", "--reason", "it printed a password")
    assert removed.out == f"{papers.task('leak@3')}: the logs of 1 attempt removed\n"
    assert "PostgreSQL's write-ahead log, until it is written over" in removed.err
    assert arkqueue("purge", papers.run(2), "--reason", "so did this one").out == f"{papers.run(2)}: purged\n"
    assert Embedded(arkqueue.home()).pid is None, "it ran for the commands alone"

    arkqueue.start()
    assert "because it printed a password" in papers.log("leak@3")
    assert SECRET not in papers.log("leak@3")
    gone = arkqueue("show", papers.run(2), code=1).err
    assert "was purged on" in gone
    assert "because so did this one" in gone
    papers.commit({"paper.tex": "third thoughts\n"})
    papers.wait_for_run(4)
