"""Look whether the target has received the package byte for byte."""

from __future__ import annotations

from contextlib import closing

from targets import Receipt, Target
from task import Failure, Task, inputs, run, target_name
from transports import connect


def verify(task: Task) -> None:
    target, package, sent = Target.load(target_name()), inputs()["package"], inputs()["send"]
    with closing(connect(target)) as session:
        found = session.digest(Receipt(sent["package"], sent["copy"], sent["reference"]))
    wanted = package["sha256"]
    if found != wanted:
        raise Failure(
            f"{target.name} has another package at {sent['package']}: its SHA-256 is {found} instead of {wanted}"
        )
    task.outputs["message"] = f"{target.name} has it byte for byte (SHA-256 {found[:12]}…)"


run(verify)
