"""Scratch folders on the command line: where they are, whose host is waited for, and the commands
that help.
"""

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
    assert shown == [
        {"hostname": "ark-1", "store": HOST, "is_removed": False, "folders": 1, "bytes": 3 << 20, "kept": 0}
    ]
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


def test_the_folder_of_a_superseded_or_canceled_run_stays_and_show_and_explain_say_until_when(
    arkqueue: Cli, session: Session
) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "ark-1", 4, store=HOST)
    tasks = {
        "fetch": "scratch: run",
        "read": "scratch: run\ndepends: [fetch]\ncancels: [PREV]",
        "each": "scratch: item\nforeach: [x, y]",
    }
    archive.commit(tasks)

    def take(key: str) -> int:
        taken = scratch.take(session, PROCESS, HOST, archive.attempt(key))
        assert taken is not None
        scratch.made(session, taken.id)
        return taken.id

    folders = [take("fetch@2"), take("each/x@2"), take("each/y@2")]
    archive.run("fetch@2", "each/y@2")
    archive.fail("each/x@2")
    archive.commit(tasks)
    archive.run("fetch@3")
    assert archive.state("read@2") == "canceled", "it is superseded"
    assert scratch.unneeded(session, folders).folders == {folders[2]}
    scratch.measured(session, {folders[0]: 5 << 20, folders[1]: 0})
    assert (
        "scratch     2 folders on ark-1, 5.0 MiB; all stay for a retry, until `arkqueue delete papers@2`\n"
        in arkqueue("show", "papers@2").out
    )
    stays = "stays for a retry. It is removed when the failed tasks are retried with success or skipped, and the canceled or superseded ones are deleted or purged."
    of_run = f"The scratch folder of papers@2 on ark-1 (5.0 MiB) {stays} `arkqueue delete papers@2` removes it."
    assert of_run in arkqueue("explain", "papers@2/read").out.replace("\n", " ")
    assert of_run in arkqueue("explain", "papers@2").out.replace("\n", " ")
    of_item = f"The scratch folder of papers@2/*/x on ark-1 {stays} `arkqueue delete 'papers@2/*/x'` removes it."
    assert of_item in arkqueue("explain", "papers@2/each/x").out.replace("\n", " ")
    assert of_item not in arkqueue("explain", "papers@2/each/y").out.replace("\n", " ")
    # The printed commands free the folders.
    assert arkqueue("delete", "papers@2/*/x").code == 0
    assert scratch.unneeded(session, folders).folders == {*folders[1:]}
    assert arkqueue("delete", "papers@2").code == 0
    assert scratch.unneeded(session, folders).folders == {*folders}


def test_a_folder_in_use_is_not_said_to_stay(arkqueue: Cli, session: Session) -> None:
    archive = an_archive(session)
    claim.register(session, PROCESS, HOST, "ark-1", 4, store=HOST)
    archive.commit({"fetch": "scratch: run", "beside": ""})
    taken = scratch.take(session, PROCESS, HOST, archive.attempt("fetch@2"))
    assert taken is not None
    scratch.made(session, taken.id)
    archive.fail("fetch@2")
    assert "stays" not in arkqueue("show", "papers@2").out, "another task of the run is still to end"
    archive.run("beside@2")
    assert "; stays for a retry" in arkqueue("show", "papers@2").out
    arkqueue("skip", "papers@2/fetch")
    assert "stays" not in arkqueue("show", "papers@2").out, "it goes by itself"
