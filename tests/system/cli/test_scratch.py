"""Scratch folders on the command line: where they are, whose host is waited for, and the commands that help."""

from __future__ import annotations

import json

from arkqueue.db.session import Session
from arkqueue.queue import claim, scratch
from tests.builders import HOST, PROCESS, an_archive
from tests.system.cli.conftest import Cli


def test_show_explain_doctor_and_retry_speak_of_scratch_folders(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "ark-1", 4, store=HOST, scratch_limit=1 << 20)
    archive.commit({"fetch": "scratch: run", "read": "scratch: run\ndepends: [fetch]\nhold: true"})
    assert "scratch" not in arkqueue("show", "papers@2").out
    taken = scratch.take(session, PROCESS, HOST, archive.attempt("fetch@2"))
    assert taken is not None
    archive.run("fetch@2")
    assert "scratch     1 folder on ark-1\n" in arkqueue("show", "papers@2").out

    scratch.measured(session, {taken.id: 3 << 20})
    assert "scratch     1 folder on ark-1, 3.0 MiB\n" in arkqueue("show", "papers@2").out
    shown = json.loads(arkqueue("show", "papers@2", "--json").out)["scratch"]
    assert shown == [{"hostname": "ark-1", "store": HOST, "is_removed": False, "folders": 1, "bytes": 3 << 20}]
    found = arkqueue("doctor")
    assert found.code == 1
    assert found.lines[0].startswith(
        "papers@2: its scratch folder takes 3072 kB on ark-1, where all of them take 3072 kB and scratch_limit is 1024 kB"
    )
    scratch.measured(session, {taken.id: 0})

    claim.unregister(session, PROCESS)
    assert arkqueue("release", "papers@2/read").code == 0
    told = arkqueue("explain", "papers@2/read").out
    assert "its scratch folder is on ark-1" in told
    assert "arkqueue retry papers@2 --from fetch" in told
    refused = arkqueue("retry", "papers@2", "--from", "read")
    assert refused.code == 1
    assert arkqueue("retry", "papers@2", "--from", "fetch").code == 0
    assert "scratch" not in arkqueue("show", "papers@2").out
