"""The state *recording* of a job: the record is handed over to inventory, which works on it in its own time. The poll, `recorded.py`, asks for the outcome."""

from __future__ import annotations

from job import Failed, Job, NotNow, ask, end, inputs, output, service


def main() -> None:
    job = Job()
    try:
        record = hand_over(job)
    except Failed as error:
        # Perhaps inventory has the record, and its answer was lost. It keeps one for each job, so the poll hands it over again.
        raise NotNow(str(error)) from None
    raise NotNow(f"record {record} is handed over")


def hand_over(job: Job) -> str:
    given = inputs()
    record = {
        "job": job.key,
        "ark": given["mint"]["ark"],
        "local_id": given["mint"].get("local_id"),
        "version": int(given["store"]["version"]),
        "manifest_url": given["store"]["manifest_url"],
        "mode": job.submission_mode,
        "owner": job.profile["owner"],
        "collection": job.profile["collection"],
    }
    handed = ask("POST", f"{service('inventory')}/records", record)
    output(record=handed["id"])
    return str(handed["id"])


if __name__ == "__main__":
    end(main)
