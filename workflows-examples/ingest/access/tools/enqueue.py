"""A request comes into the access queue: how large its object is, in which pool it is assembled, where it will be, and when, from the history of such requests."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

from job import Rejected, ask, end, output, service, settings, size
from request import REQUEST, api

LOOKED_AT = 50
"""Requests of the history."""


def main() -> None:
    node, ark = REQUEST["delivery-node"], REQUEST["ark"]
    found = ask("GET", f"{service('storage')}/object/{node}/{ark}")
    if found is None:
        raise Rejected(f"{ark}: is not on node {node}")
    content = found["cloud-content-byte"]
    pool = "Large" if content > size(settings()["access"]["large"]) else "Small"
    expected = expected_at(pool, content)
    output(
        **{
            "token": REQUEST["token"],
            "pool": pool,
            "cloud-content-byte": content,
            "delivery-node": node,
            "url": f"{service('delivery')}/{REQUEST['token']}.zip",
            "anticipated-availability-time": expected and expected.isoformat(timespec="seconds"),
        }
    )
    print(f"{ark}: {content:,} bytes, access{pool}; expected {expected or 'at a time that nobody knows yet'}")


def expected_at(pool: str, content: int) -> datetime | None:
    """When a request of a pool is expected to be ready: as fast as the last ones of the pool, behind those that wait in it. None: there was none yet."""
    archive = os.environ["ARKQUEUE_ARCHIVE"]
    runs = (api(f"/runs?archive={archive}&limit={LOOKED_AT}&state=completed") or {}).get("runs", [])
    done = [task for run in runs for task in _assembled(run, pool)]
    seconds, bytes_ = sum(float(task["seconds"]) for task in done), sum(int(task["content"]) for task in done)
    if not done:
        return None
    lock = next((one for one in _locks() if one["name"] == f"{archive}/access{pool}"), None)
    at_once = (lock and lock["capacity"]) or 1
    before = len(lock["holders"]) + len(lock["waiting"]) if lock else 0
    own = seconds / len(done) * content * len(done) / bytes_ if bytes_ else seconds / len(done)
    return datetime.now(UTC) + timedelta(seconds=own + before // at_once * seconds / len(done))


def _assembled(run: dict[str, Any], pool: str) -> list[dict[str, Any]]:
    """What the requests of a run took, of those that a pool assembled."""
    report = api(f"/runs/{run['id']}/reports/1") or {"tasks": []}
    outputs = [task["outputs"] or {} for task in report["tasks"] if task["name"] == "assemble"]
    return [found for found in outputs if found.get("pool") == pool]


def _locks() -> list[dict[str, Any]]:
    found = api("/locks")
    return list(found["locks"] if isinstance(found, dict) else found or [])


if __name__ == "__main__":
    end(main)
