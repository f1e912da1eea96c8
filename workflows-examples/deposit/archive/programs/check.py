"""Look whether the submission can be deposited at all; where not, no deposit is begun."""

from task import Rejection, Task, attachments, run, submission


def check(task: Task) -> None:
    document, files = submission(), attachments()
    if not files:
        raise Rejection(
            f"submission {document['id']} has no files, so there is nothing to deposit:"
            " hand it in with its files (arkqueue submit … --attach)"
        )
    for deposit in (item["deposit"] for item in document["items"]):
        if deposit.partition(".")[0] != document["id"]:
            raise Rejection(
                f"deposit {deposit} is none of submission {document['id']}: call it {document['id']}.TARGET"
            )
    task.outputs["files"] = str(len(files))
    task.outputs["message"] = f"{len(files)} files for {len(document['items'])} targets"


run(check)
