"""The state *reporting* of a batch: a summary for the depositor, of what has completed and what has failed.

A further report (`arkqueue report RUN --update`) tells what has succeeded since the last one, and what is still unresolved.
"""

from __future__ import annotations

import json
import os
import smtplib
import sys
import urllib.parse
from email.message import EmailMessage
from pathlib import Path
from typing import Any

from job import Failed, end, settings

LAST = "notify"
"""The task with which a job is completed."""
SHOWN = 1000
"""Jobs that a mail lists of each kind."""


def main() -> None:
    if not sys.argv[1]:
        print("a run of a commit has no depositor")
        return
    batch = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    report = json.loads(Path(os.environ["ARKQUEUE_INPUTS"]).read_text("utf-8"))
    batch_id = batch.get("batch_id") or os.environ["ARKQUEUE_SUBMISSION_ID"] or report["run"]
    mark = f"{report['run']}.{report['number']}"
    if not batch["items"]:
        _batch(batch, batch_id, report, mark)
        return
    jobs = _jobs(batch, report)
    completed = [job for job in jobs if job["status"] == "completed"]
    unresolved = [job for job in jobs if job["status"] not in ("completed", "deleted")]
    text = [f"Batch {batch_id}, handed in by {batch['submitter']} for {batch['profile_name']}", ""]
    if report["since"] is None:
        subject = "completed" if not unresolved else "failed"
        text += _listed("Completed", completed)
    else:
        subject = "update: " + ("completed" if not unresolved else "still unresolved")
        text += _listed("Succeeded since the last report", [job for job in completed if job["changed"]])
    text += _listed("Not resolved" if report["since"] else "Failed", unresolved)
    subject = f"Batch {batch_id} {subject}: {len(completed)} of {len(jobs)} objects"
    send(batch["submitter"], subject, "\n".join(text) + "\n", f"report.{mark}")


def _batch(batch: dict[str, Any], batch_id: str, report: dict[str, Any], mark: str) -> None:
    """A batch that could not be made has no jobs, and its depositor is told so. One that was made is reported with its jobs."""
    task = next((task for task in report["tasks"] if task["name"] == "batch"), None)
    if task is None or task["state"] == "completed":
        print("the batch was made; its jobs are reported")
        return
    why = (task["outputs"] or {}).get("message") or task["message"] or task["state"]
    text = f"No object of batch {batch_id} was ingested.\n\n{task['state']}: {why}\n"
    send(batch["submitter"], f"Batch {batch_id} {task['state']}", text, f"report.{mark}")


def _jobs(batch: dict[str, Any], report: dict[str, Any]) -> list[dict[str, Any]]:
    """What became of each job: the state and message of the task at which it ended."""
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for task in report["tasks"]:
        if task["item"]:
            tasks.setdefault(task["item"], {})[task["name"]] = task
    jobs = []
    for item in batch["items"]:
        of_job = tasks.get(item["job_id"])
        if of_job is None:
            continue  # deleted: whoever deleted it wanted it told to nobody
        last = of_job.get(LAST, {"state": "waiting", "changed": False})
        broken = next((t for t in of_job.values() if t["state"] not in ("completed", "skipped")), None)
        outputs = {name: value for t in of_job.values() for name, value in (t["outputs"] or {}).items()}
        is_done = last["state"] == "completed"
        jobs.append(
            {
                "job_id": item["job_id"],
                "local_id": item.get("local_id") or outputs.get("local_id", ""),
                "ark": outputs.get("ark", ""),
                "status": "completed"
                if is_done
                else f"{broken['name']} {broken['state']}"
                if broken
                else last["state"],
                "message": ""
                if is_done or broken is None
                else (broken["outputs"] or {}).get("message") or broken["message"],
                "changed": any(task["changed"] for task in of_job.values()),
            }
        )
    return jobs


def _listed(title: str, jobs: list[dict[str, Any]]) -> list[str]:
    lines = [f"{title}: {len(jobs)}"]
    for job in jobs[:SHOWN]:
        lines.append(
            "  " + "  ".join(filter(None, (job["job_id"], job["local_id"], job["ark"], job["status"], job["message"])))
        )
    return [*lines, *(["  …"] if len(jobs) > SHOWN else []), ""]


def send(to: str, subject: str, text: str, mark: str) -> None:
    """Send a mail. ``mark`` is its own: a receiver can tell one that comes twice."""
    known = settings()
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = known["sender"], to, " ".join(subject.split())
    mail["Message-ID"] = f"<{urllib.parse.quote(mark, safe='')}@{known['sender'].rpartition('@')[2]}>"
    mail.set_content(text)
    host, _, port = known["services"]["mail"].rpartition(":")
    try:
        with smtplib.SMTP(host, int(port), timeout=30) as server:
            server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise Failed(f"the mail to {to} was not sent: {error}") from None
    print(f"sent to {to}: {mail['Subject']}")


if __name__ == "__main__":
    end(main)
