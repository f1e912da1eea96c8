"""The first half of the state *processing* of a job: which ARK the object has. A new one is minted once, whatever becomes of the attempt.

The minting service gives an ARK for the name of a job, and the same one when it is asked again with that name. So a task that was killed between the
service's answer and its own note wastes none.
"""

from __future__ import annotations

import json
import urllib.parse

from job import Failed, Job, Rejected, ask, end, one_line, output, service

ERC = "mrt-erc.txt"
LONGEST_ERC = 1 << 16
"""Bytes in which the local id must stand."""
LONGEST_LOCAL_ID = 500


def main() -> None:
    job = Job()
    kept = job.folder / "identifiers.json"
    if kept.is_file():
        known = json.loads(kept.read_text("utf-8"))
        output(**known)
        print(f"{job.key}: {known['ark']} was minted by an earlier attempt")
        return
    minting = service("minting")
    local_id = job.local_id or local_id_of_erc(job)
    ark = job.ark
    if local_id:
        words = urllib.parse.urlencode({"owner": job.profile["owner"], "local_id": local_id})
        found = ask("GET", f"{minting}/lookup?{words}")
        if found and ark and found["ark"] != ark:
            raise Failed(f"local id {local_id}: belongs to {found['ark']}, and the depositor gave {ark}")
        ark = ark or (found and found["ark"])
    about = {
        "job": job.key,
        "owner": job.profile["owner"],
        "local_id": local_id,
        "who": job.erc_who,
        "what": job.erc_what,
        "when": job.erc_when,
    }
    if ark:
        ask("PUT", f"{minting}/id/{ark}", about)
        how = "is the object's"
    else:
        ark = ask("POST", f"{minting}/shoulder/{job.profile['shoulder']}", about)["ark"]
        how = "is minted"
    known = {"ark": ark} | ({"local_id": local_id} if local_id else {})
    output(**known)
    job.write("identifiers.json", known)
    print(f"{job.key}: {ark} {how}")


def local_id_of_erc(job: Job) -> str | None:
    """The local id in the depositor's own ERC, if there is one."""
    path = job.producer / ERC
    if not path.is_file():
        return None
    with path.open("rb") as file:
        text = file.read(LONGEST_ERC).decode("utf-8", "replace")
    for line in text.splitlines():
        word, _, value = line.partition(":")
        local_id = one_line(value)
        if word.strip() == "where" and local_id and not local_id.startswith("ark:"):
            if len(local_id) > LONGEST_LOCAL_ID:
                raise Rejected(f"{ERC}: its local id has more than {LONGEST_LOCAL_ID} characters")
            return local_id
    return None


if __name__ == "__main__":
    end(main)
