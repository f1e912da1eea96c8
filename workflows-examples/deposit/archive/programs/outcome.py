"""Ask what has become of a deposit: it is accepted, rejected, or still in review. Both the command and the poll of ``outcome``.

A target without a status document has accepted what it has received and what was verified there.
"""

from __future__ import annotations

from contextlib import closing

from status_document import read
from targets import ACCEPTED, REJECTED, SUBMITTED, Target
from task import DONE, NOT_NOW, Task, inputs, run, target_name
from task import REJECTED as FINAL
from transports import connect

CODES = {ACCEPTED: DONE, REJECTED: FINAL, SUBMITTED: NOT_NOW}


def ask(task: Task) -> None:
    target, sent = Target.load(target_name()), inputs()["send"]
    task.outputs["copy"] = sent["copy"]
    if not sent["reference"]:
        task.outputs["message"] = f"accepted: {target.name} has it, and has no status to ask for"
        return
    with closing(connect(target)) as session:
        document = read(session.status(sent["reference"]))
    meaning = target.meaning(document.state)
    task.outputs["copy"] = document.copy or sent["copy"]
    said = f" ({document.description})" if document.description else ""
    task.end(CODES[meaning], f"{meaning}: {target.name} says {document.state}{said}")


run(ask)
