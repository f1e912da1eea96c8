"""Look whether the submission can be deposited at all; where not, no deposit is begun."""

from task import Failure, Task, attachments, run, submission


def check(task: Task) -> None:
    document, files = submission(), attachments()
    if not files:
        raise Failure(
            f"submission {document['id']} has no files, so there is nothing to deposit:"
            " hand it in with its files (arkqueue submit … --attach)"
        )
    task.outputs["files"] = str(len(files))
    task.outputs["message"] = f"{len(files)} files for {len(document['items'])} targets"


run(check)
