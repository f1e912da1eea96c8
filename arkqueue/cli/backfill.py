"""Backfills: ``trigger --from`` makes them, ``show`` shows them, and some verbs act on all of their
runs by their name, ``papers@fill:1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.output import ago, at, bold, dim, print_json, say, state, table
from arkqueue.cli.proposal import say_proposal
from arkqueue.failures import bad_in_words
from arkqueue.names import as_backfill
from arkqueue.text import on_one_line, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

VERBS = ("hold", "release", "cancel", "prioritize")
"""The verbs that act on a whole backfill."""


def is_one(name: str) -> bool:
    """Whether a name is the name of a backfill."""
    return as_backfill(name) is not None


def begin(
    client: Client,
    archive: str,
    tasks: Sequence[str],
    branch: str | None,
    first: str | None,
    last: str | None,
    revision: str | None,
    without: Sequence[str],
    force: bool,
    dry_run: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Make a backfill, and print its name. First print on stderr what the backfill is, and what its
    first run waits for.
    """
    from arkqueue.cli.client import archive_path

    if first is None:
        raise click.UsageError("--to needs --from.")
    if not tasks:
        raise click.UsageError(
            "name the tasks that are to run over old revisions: arkqueue trigger ARCHIVE TASK --from REV"
        )
    if revision is not None:
        raise click.UsageError("--revision and --from do not go together: a backfill has the head's definitions.")
    if wait:
        raise click.UsageError("--wait waits for one run, and --from makes many; arkqueue show tells how far they are.")
    body = {
        "branch": branch,
        "tasks": list(tasks),
        "first": first,
        "last": last,
        "without": list(without),
        "force": force,
    }
    place = f"{archive_path(archive)}/backfills"
    proposed = client.post(place, body, dry_run="true")
    if dry_run and as_json:
        print_json(proposed)
        return
    say(_what(proposed), err=True)
    say("Its first run would be:", err=True)
    say_proposal(proposed["first_run"], "", proposed["obstacles"])
    if dry_run:
        say("Nothing is made.", err=True)
        return
    # The revisions that were shown, even if the head has moved since.
    made = client.post(place, body | {"first": proposed["first"], "last": proposed["last"]})
    print_json(made) if as_json else say(made["full_name"])


def act(client: Client, verb: str, name: str, body: dict[str, Any], dry_run: bool) -> tuple[Any, list[str]]:
    """Carry out a verb on a whole backfill."""
    from arkqueue.cli.verbs import many_lines
    from arkqueue.errors import Invalid

    if verb not in VERBS:
        fault = f"is the name of a backfill, and {verb} is for its runs"
        raise Invalid(name, fault, f"Name one of them: arkqueue show {name}")
    if body.get("assume_gone"):
        raise Invalid(
            name, "is the name of a backfill, and --assume-gone is for tasks", "Name the task whose process is gone."
        )
    given = {} if verb == "cancel" else body
    answer = client.post(f"{_place(name)}/{verb}", given, dry_run="true" if dry_run else None)
    did = {
        "hold": "held",
        "release": "released",
        "cancel": "canceled or asked to stop",
        "prioritize": "given this priority",
    }
    lines = many_lines(did[verb], name, answer)
    if not answer["backfill"]["is_planned"]:
        lines.append("what is still to be planned of it is treated alike")
    return answer, lines


def show(client: Client, name: str, as_json: bool) -> None:
    """Print the progress of a backfill: first counts, then the runs that failed and the open runs."""
    found = client.get(_place(name))
    if as_json:
        print_json(found)
        return
    counts = found["counts"]
    left = found["revisions"] - found["planned"]
    bad = bad_in_words(counts["failed"], counts["rejected"], found["waived"], found["waived_rejected"])
    facts = [
        ("tasks", " ".join(map(visible, found["tasks"]))),
        ("revisions", f"{found['first']} to {found['last']}: {found['revisions']}" + (f", {left} still to be planned" if left and not found["is_planned"] else "")),
        ("workflow", f"of {visible(found['definitions'])}"),
        ("without", " ".join(map(visible, found["without"]))),
        ("made", f"{at(found['made_at'])} by {visible(found['by'])}"),
        ("priority", "behind what is committed" if found["priority"] is None else str(found["priority"])),
        ("held", "until it is released" + ("" if found["is_planned"] else "; what is still to be planned is held, too") if found["is_held"] else ""),
        ("stopped", on_one_line(found["fault"]) if found["fault"] else ""),
        ("waits", (f"since {at(found['waits_since'])}: " if found["waits_since"] else "") + on_one_line(found["waits"]) if found["waits"] else ""),
        ("done", ", ".join((*_in_state(counts, "completed"), *bad.unwaived, *bad.waived, *_in_state(counts, "canceled", "skipped"))) or "nothing yet"),
        ("left", ", ".join(filter(None, (_open(counts), f"{counts['running']} running" if counts["running"] else "", f"{counts['held']} held" if counts["held"] else ""))) or "nothing"),
    ]  # fmt: skip
    say(bold(visible(found["full_name"])))
    for key, value in facts:
        if value:
            say(f"  {dim(key)}{' ' * (12 - len(key))}{value}")
    for title, runs in (("FAILED", found["failed"]), ("NOW", found["open"])):
        if runs:
            say()
            table(
                [(bold(run["full_name"]), _state(run), ago(run["created_at"])) for run in runs],
                (title, "STATE", "MADE"),
            )


def _state(run: Any) -> str:
    """The state of a run, and of its report, which does not change it, if that failed."""
    return state(run["state"]) + (", its report failed" if run["report"] == "failed" else "")


def _in_state(counts: Any, *states: str) -> list[str]:
    """The numbers of tasks in some states, in words."""
    return [f"{counts[word]} {word}" for word in states if counts[word]]


def _open(counts: Any) -> str:
    """The number of waiting tasks, in words."""
    waiting = counts["tasks"] - sum(
        counts[word] for word in ("running", "held", "completed", "failed", "rejected", "canceled", "skipped")
    )
    return f"{waiting} waiting" if waiting else ""


def _what(made: Any) -> str:
    number = made["revisions"]
    revisions = f"{number} revision{'s' if number != 1 else ''} from {made['first']} to {made['last']}"
    return visible(
        f"{made['full_name']}: {', '.join(made['tasks'])} at {revisions}, with the workflow files of {made['definitions']}"
    )


def _place(name: str) -> str:
    from arkqueue.cli.client import archive_path

    found = as_backfill(name)
    assert found is not None
    return f"{archive_path(found[0])}/backfills/{found[1]}"
