"""The poll of the state *recording*: what inventory has made of the record. What has failed is told; when a person retries, it is handed over again."""

from __future__ import annotations

from job import Failed, Job, NotNow, ask, end, inputs, output, service
from recording import hand_over

TOLD = "recording-failed"
"""Names the record whose failure was told, in the working folder."""


def main() -> None:
    job = Job()
    told = job.folder / TOLD
    record = str(inputs()["self"].get("record") or "")
    try:
        found = ask("GET", f"{service('inventory')}/records/{record}") if record else None
        if found is None or (found["status"] == "failed" and told.exists()):
            told.unlink(missing_ok=True)
            record = hand_over(job)
            raise NotNow(f"record {record} is handed over again")
    except Failed as error:
        raise NotNow(str(error)) from None
    if found["status"] == "failed":
        told.write_text(record)
        raise Failed(f"inventory: {found['message']}")
    if found["status"] != "recorded":
        raise NotNow(f"record {record} is {found['status']}")
    output(recorded_at=found["last_modified"])
    print(f"{job.key}: is recorded")


if __name__ == "__main__":
    end(main)
