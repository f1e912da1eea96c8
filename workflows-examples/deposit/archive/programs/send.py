"""Send the package to its target, at most once.

The target is asked first whether it has the deposit: an earlier attempt may have been lost after the target's yes. A target that does
not answer is tried again later; any other refusal fails the deposit, with the target's own message.
"""

from __future__ import annotations

from contextlib import closing

from targets import Target
from task import Task, inputs, run, scratch, submission, target_name
from transports import connect


def send(task: Task) -> None:
    target, package, document = Target.load(target_name()), inputs()["package"], submission()
    with closing(connect(target)) as session:
        receipt = session.find(package["name"])
        if receipt is not None:
            task.outputs["message"] = (
                f"{target.name} has {package['name']} already, from an earlier attempt: not sent again"
            )
        else:
            receipt = session.send(package["name"], scratch() / "package.zip", document)
            task.outputs["message"] = f"{target.name} has received {package['name']}"
    task.outputs |= {"package": receipt.package, "copy": receipt.copy, "reference": receipt.reference}


run(send)
