"""The statuses of submissions, of their deposits and of the copies, computed from arkqueue's record: nothing else keeps them.

    .venv/bin/python workflows-examples/deposit/statuses.py deposits              all submissions of the archive, newest first
    .venv/bin/python workflows-examples/deposit/statuses.py deposits s-1 s-2      these submissions (the --id with which they were handed in)

So they are always congruent: a copy follows from its deposit, a submission from its deposits. A status is terminal when an attempt of
``outcome`` has learned it, and attempts are never changed: the first such attempt counts, whatever is run again afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx

NOT_STARTED, IN_PROGRESS, SUBMITTED = "NOT_STARTED", "IN_PROGRESS", "SUBMITTED"
ACCEPTED, REJECTED, FAILED, COMPLETE = "ACCEPTED", "REJECTED", "FAILED", "COMPLETE"
TERMINAL = {ACCEPTED, REJECTED}
STEPS = "package", "send", "verify", "outcome"
LEARNED = {0: ACCEPTED, 65: REJECTED}
"""What the exit code of an attempt of ``outcome`` says for good."""
COPIES = {ACCEPTED: COMPLETE, REJECTED: REJECTED, SUBMITTED: IN_PROGRESS}
"""The status of the copy; a failed deposit, and one that was not sent yet, has none."""
SAID = 1000
"""Characters of a message."""


@dataclass(frozen=True)
class Deposit:
    """A deposit. ``status`` None: it was not sent yet. ``copy``: the copy's status, None: there is no copy; ``location``: where it is, or will be."""

    target: str
    status: str | None
    copy: str | None
    location: str
    message: str
    task: str
    """The task that speaks for it, as the commands name it."""


@dataclass(frozen=True)
class Submission:
    id: str
    run: str
    status: str
    message: str
    deposits: list[Deposit] = field(default_factory=list)


def deposit(target: str, tasks: Mapping[str, Mapping[str, Any]]) -> Deposit:
    """The deposit at a target, of its tasks by their names, each with its ``history`` of attempts."""
    learned = next((one for one in tasks["outcome"]["history"] if _code(one) in LEARNED), None)
    if learned is not None:
        return _made(target, LEARNED[_code(learned)], tasks["outcome"], _message(learned), learned)
    for name in STEPS:
        task = tasks[name]
        if task["state"] in ("failed", "rejected", "canceled"):
            return _made(target, FAILED, task, _why_it_failed(target, task))
    sent = next((one for one in reversed(tasks["send"]["history"]) if _code(one) == 0), None)
    if sent is not None and tasks["send"]["state"] == "completed":
        speaks = tasks["outcome"] if tasks["outcome"]["history"] else tasks["send"]
        return _made(target, SUBMITTED, speaks, _last_message(speaks), sent)
    # Not sent yet: the first step that is not over says why.
    task = next((tasks[name] for name in STEPS if tasks[name]["state"] != "completed"), tasks["outcome"])
    return _made(target, None, task, _last_message(task) or f"{task['name']} is {task['state']}")


def submission(
    id: str, run: Mapping[str, Any], check: Mapping[str, Any] | None, deposits: Sequence[Deposit]
) -> Submission:
    """A submission, of its run, its task ``check`` and its deposits. One that has failed has no deposits."""
    name = run["full_name"]
    if run["faults"] or check is None:
        return Submission(id, name, FAILED, "; ".join(fault["message"] for fault in run["faults"]))
    if check["state"] in ("failed", "rejected", "canceled"):
        return Submission(id, name, FAILED, _last_message(check) or f"check is {check['state']}")
    if not check["history"]:
        return Submission(id, name, NOT_STARTED, f"check is {check['state']}")
    found = {one.status for one in deposits}
    status = found.pop() if len(found) == 1 and found <= TERMINAL else IN_PROGRESS
    return Submission(id, name, str(status), _counted(deposits), list(deposits))


def _made(
    target: str, status: str | None, task: Mapping[str, Any], message: str, said: Mapping[str, Any] | None = None
) -> Deposit:
    copy = COPIES.get(status or "")
    location = str(((said or {}).get("outputs") or {}).get("copy", "")) if copy else ""
    return Deposit(target, status, copy, location, message, task["full_name"])


def _code(attempt: Mapping[str, Any]) -> int:
    """The exit code of an attempt that ended by itself; -1 for any other."""
    return int(attempt["exit_code"]) if attempt["end"] == "exited" and attempt["exit_code"] is not None else -1


def _message(attempt: Mapping[str, Any]) -> str:
    """What the program said, or else arkqueue."""
    return str((attempt["outputs"] or {}).get("message") or attempt["message"])[:SAID]


def _last_message(task: Mapping[str, Any]) -> str:
    ended = [one for one in task["history"] if one["end"]]
    return _message(ended[-1]) if ended else ""


def _why_it_failed(target: str, task: Mapping[str, Any]) -> str:
    ended = [one for one in task["history"] if one["end"]]
    if task["name"] == "send" and ended and ended[-1]["end"] != "exited" and ended[-1]["started_at"]:
        lost = ended[-1]["message"] or ended[-1]["end"]
        again = f"arkqueue retry {task['full_name']}" + (" --from-start" if ended[-1]["end"] == "lost" else "")
        return f"it is not known whether {target} has it ({lost}): `{again}` asks before it sends"
    said = _message(ended[-1]) if ended else ""
    if task["state"] == "canceled":
        return (task["why"] or "canceled") + (f", after: {said}" if said else "")
    return said or task["why"] or task["state"]


def _counted(deposits: Sequence[Deposit]) -> str:
    names = [one.status or "not sent" for one in deposits]
    return ", ".join(f"{names.count(name)} {name}" for name in sorted(set(names)))


# -- arkqueue's record --------------------------------------------------------------------------------------------------


def submissions(api: httpx.Client, archive: str, ids: Sequence[str] = ()) -> Iterator[Submission]:
    """The submissions of an archive, newest first, or those of some ids."""
    if ids:
        for id in ids:
            found = api.get(f"/archives/{archive}/submissions/{id}")
            if found.status_code == 404:
                raise SystemExit(f"statuses: there is no submission {id!r} in archive {archive}")
            yield _submission(api, _json(api, f"/runs/{found.raise_for_status().json()['run']['id']}"))
        return
    before: int | None = None
    while True:
        page = _json(
            api, "/runs", archive=archive, trigger="submission", limit=100, **({"before": before} if before else {})
        )
        for run in page["runs"]:
            yield _submission(api, run)
        if (before := page["next"]) is None:
            return


def _submission(api: httpx.Client, run: Mapping[str, Any]) -> Submission:
    detail = _json(api, f"/runs/{run['id']}")
    check = next((task for task in detail["tasks"] if task["name"] == "check"), None)
    by_target: dict[str, dict[str, Any]] = {}
    after: int | None = None
    while True:
        page = _json(api, f"/runs/{run['id']}/items", limit=1000, **({"after": after} if after else {}))
        for task in page["tasks"]:
            by_target.setdefault(task["item"].partition(".")[2], {})[task["name"]] = _json(api, f"/tasks/{task['id']}")
        if (after := page["next"]) is None:
            break
    id = (run["submission"] or "").partition("@id:")[2] or run["full_name"]
    deposits = [deposit(target, tasks) for target, tasks in _whole(by_target)]
    # A terminal status is never overwritten: neither is it by deleting the deposit.
    gone: dict[str, dict[str, Any]] = {}
    for item in _json(api, f"/runs/{run['id']}/deleted-items"):
        for name in item["tasks"]:
            task = _json(api, f"/tasks/{_json(api, '/find', name=name)['task']}")
            gone.setdefault(item["item"].partition(".")[2], {})[task["name"]] = task
    deleted = (deposit(target, tasks) for target, tasks in _whole(gone))
    deposits += [replace(one, message=f"{one.message} (deleted)") for one in deleted if one.status in TERMINAL]
    return submission(id, run, check and _json(api, f"/tasks/{check['id']}"), deposits)


def _whole(by_target: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The targets that have a task for each step, with these tasks."""
    return ((target, tasks) for target, tasks in by_target.items() if set(STEPS) <= tasks.keys())


def _json(api: httpx.Client, path: str, **query: Any) -> Any:
    answer = api.get(path, params=query)
    if answer.is_error:
        is_told = "json" in answer.headers.get("Content-Type", "")
        said = answer.json().get("detail") if is_told else answer.reason_phrase
        raise SystemExit(f"statuses: arkqueue answers {answer.status_code}: {said}")
    return answer.json()


def connect(home: Path) -> httpx.Client:
    """The API of the server whose home folder this is."""
    try:
        url, token = ((home / name).read_text().strip() for name in ("url", "token"))
    except FileNotFoundError:
        raise SystemExit(f"statuses: no server has run in {home}: start it with `arkqueue serve`") from None
    return httpx.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {token}"}, timeout=60)


def table(found: Sequence[Submission]) -> str:
    """What a person reads."""
    lines = []
    for one in found:
        lines.append(f"{one.id}  {one.status}  {one.message}  ({one.run})")
        width = max((len(each.target) for each in one.deposits), default=0)
        for each in one.deposits:
            place = f"  {each.location}" if each.location else ""
            lines.append(f"  {each.target:{width}}  {each.status or '-':9}  copy {each.copy or '-':11}{place}")
            lines.append(f"  {'':{width}}  {each.message}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("archive")
    parser.add_argument("ids", nargs="*", metavar="ID")
    default = os.environ.get("ARKQUEUE_HOME") or str(Path.home() / ".local/share/arkqueue")
    parser.add_argument("--home", type=Path, default=Path(default), help="of the server (ARKQUEUE_HOME)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        with connect(options.home) as api:
            found = list(submissions(api, options.archive, options.ids))
    except httpx.TransportError as error:
        sys.exit(f"statuses: the server of {options.home} does not answer: {error}")
    print(json.dumps([asdict(one) for one in found], indent=1) if options.json else table(found))


if __name__ == "__main__":
    main()
