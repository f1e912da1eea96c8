"""The example that must hold (design 5, end): the graph and the sequence of events of the Ark Queue
document.
"""

from __future__ import annotations

from arkqueue.db.session import Session
from arkqueue.model import End
from tests.builders import AnArchive, an_archive

EXAMPLE = """
    - name: indexing
      command: index
      depends:
        - PREV
    - name: build-PDF
      command: build
      depends:
        - indexing
      cancels:
        - PREV
"""


def example(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit(EXAMPLE)
    archive.commit(EXAMPLE)
    return archive


def test_commits_complete_in_order_and_only_the_first_index_is_ready(session: Session) -> None:
    archive = example(session)
    assert archive.state("COMMIT@2") == archive.state("COMMIT@3") == "completed"
    assert archive.states() == {
        "indexing@2": "ready", "build-PDF@2": "waiting", "indexing@3": "waiting", "build-PDF@3": "waiting"
    }  # fmt: skip


def test_slow_pdf_is_canceled_between_the_next_index_and_the_next_pdf(session: Session) -> None:
    archive = example(session)
    archive.run("indexing@2")
    archive.claim("build-PDF@2")
    archive.run("indexing@3")
    assert archive.state("build-PDF@3") == "waiting"
    assert archive.state("build-PDF@2") == "running"
    (stop,) = archive.sql("select stop, superseded_by from task where id = %s", archive.task("build-PDF@2"))
    assert stop == {"stop": "cancel", "superseded_by": archive.task("build-PDF@3")}

    archive.end("build-PDF@2", None, End.STOPPED)
    assert archive.states() == {
        "indexing@2": "completed", "build-PDF@2": "canceled", "indexing@3": "completed", "build-PDF@3": "ready"
    }  # fmt: skip
    archive.run("build-PDF@3")
    assert archive.state("REPORT@2") == archive.state("REPORT@3") == "completed"


def test_pdf_that_does_not_run_is_canceled_at_once(session: Session) -> None:
    archive = example(session)
    archive.run("indexing@2")
    archive.end("build-PDF@2", 75)
    archive.run("indexing@3")
    assert archive.state("build-PDF@3") == "ready"
    assert archive.state("build-PDF@2") == "canceled"
