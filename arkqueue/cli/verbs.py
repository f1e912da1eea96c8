"""The verbs on tasks and runs: cancel, restart, retry, refresh, skip, prioritize, note, delete,
undelete. Each takes several names. If one is refused, the others are still done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, calls_server, dry_run, of_states
from arkqueue.cli.output import bold, print_json, say, state
from arkqueue.priorities import GREATEST_PRIORITY, LEAST_PRIORITY, USUAL_PRIORITY
from arkqueue.text import files_in_words, visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

_names = click.argument("names", metavar="TASK-OR-RUN…", nargs=-1, required=True)


@click.command(
    epilog="A running task is asked to stop, and killed after its grace; it is canceled when no process of it is left. Example: arkqueue cancel 'papers@12/deposit/*' --state waiting"
)
@_names
@click.option("--assume-gone", is_flag=True, help="You confirm that the task's process is gone, although its task manager is silent.")  # fmt: skip
@of_states
@dry_run
@as_json
@calls_server
def cancel(
    client: Client, names: Sequence[str], assume_gone: bool, states: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    """Cancel a task, or the unsettled tasks of a run or a list (RUN/TASK/*)."""
    act(client, "cancel", names, {"assume_gone": assume_gone}, as_json, dry_run, states=states)


@click.command()
@_names
@dry_run
@as_json
@calls_server
def restart(client: Client, names: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Stop a running task and start it again, without settling it."""
    act(client, "restart", names, {}, as_json, dry_run)


@click.command(
    epilog="Examples: arkqueue retry papers@12/index; arkqueue retry papers@12 --from fetch; arkqueue retry 'papers@12/*/volume-7' --from fetch; arkqueue retry 'papers@12/deposit/*' --state canceled"
)
@click.argument("names", metavar="TASK-OR-RUN-OR-ARCHIVE…", nargs=-1, required=True)
@click.option(
    "--force",
    is_flag=True,
    help="Also if the task is superseded, or tasks of later revisions have started after it or have done its work.",
)
@click.option("--failed", is_flag=True, help="Of a run, a list or an archive: only failed tasks that are not out of date.")  # fmt: skip
@of_states
@click.option("--from", "from_task", metavar="TASK", help="Of a run or an item: this task and all tasks behind it, also completed ones.")  # fmt: skip
@click.option("--from-start", is_flag=True, help="Run the command again also of a polled task or one with on_lost: fail; it may repeat its effects.")  # fmt: skip
@dry_run
@as_json
@calls_server
def retry(
    client: Client,
    names: Sequence[str],
    force: bool,
    failed: bool,
    states: Sequence[str],
    from_task: str | None,
    from_start: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Run a failed or canceled task again, with the same definition. Tasks that were skipped
    because of it come back. A deferred task is tried at once.

    With --from, a task and all tasks behind it in the run run again, whatever their states, except
    tasks that a person skipped.

    A deferred task with a poll is polled again, with a new deadline. Its command runs again only
    with --from-start. So does a command with on_lost: fail that was lost: it may have done its work.
    """
    if failed and from_start:
        raise click.UsageError("--failed and --from-start do not go together: name the task or run.")
    if failed and force:
        raise click.UsageError("--failed and --force do not go together: name the task or run that is to be forced.")
    if failed and from_task is not None:
        raise click.UsageError("--failed and --from do not go together: --from runs again also what has completed.")
    for name in names:
        if is_archive(name) and not failed:
            wanted = "an item or a run" if from_task is not None else "a run or a task, or add --failed"
            raise click.UsageError(f"{name!r} is the name of an archive: name {wanted}.")
    body: dict[str, Any] = {"failed": True} if failed else {"force": force, "from_start": from_start}
    if from_task is not None:
        body["from_task"] = from_task
    act(client, "retry", names, body, as_json, dry_run, partial(many_lines, "to be run again"), states=states)


@click.command(epilog="Examples: arkqueue refresh papers@12/deposit; arkqueue refresh papers")
@click.argument("names", metavar="TASK-OR-RUN-OR-ARCHIVE…", nargs=-1, required=True)
@dry_run
@as_json
@calls_server
def refresh(client: Client, names: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Run the poll of a deferred task now, or of all of an item, a run or an archive."""
    act(client, "refresh", names, {}, as_json, dry_run, partial(many_lines, "to be polled"))


@click.command(
    epilog="Examples: arkqueue skip papers@12/index lets later revisions go on without it; arkqueue skip papers/index --until 12 waives every failure of the task up to revision 12; arkqueue skip 'papers@12/deposit/*' --failed waives every failure of a list."
)
@_names
@click.option("--as-completed", is_flag=True, help="Also let tasks of its own run go on, as if the task had completed.")  # fmt: skip
@click.option("--force", is_flag=True, help="With --as-completed: also if the tasks that wait for it are superseded, or later revisions have started after it or have done its work.")  # fmt: skip
@click.option("--until", type=click.IntRange(min=0), metavar="REV", help="Of ARCHIVE/TASK: every failure up to this revision.")  # fmt: skip
@click.option("--failed", is_flag=True, help="Of RUN/TASK/*: only the items that failed.")
@of_states
@dry_run
@as_json
@calls_server
def skip(
    client: Client,
    names: Sequence[str],
    as_completed: bool,
    force: bool,
    until: int | None,
    failed: bool,
    states: Sequence[str],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Decide that a task will not run, or that tasks that wait for a failed task may go on."""
    if force and not as_completed:
        raise click.UsageError(
            "--force goes with --as-completed only: nothing else of skip is refused for what came later."
        )
    if until is None:
        body = {"as_completed": as_completed, "force": force}
        act(client, "skip", names, body, as_json, dry_run, states=_with_failed(states, failed))
        return
    if failed or states:
        raise click.UsageError("--until takes ARCHIVE/TASK, and --failed and --state take RUN/TASK/*.")
    if as_completed:
        raise click.UsageError("--until and --as-completed do not go together.")
    waivers = {name: _waiver(name) for name in names}
    each(names, lambda name: _waive(client, *waivers[name], until, dry_run), as_json, dry_run)


class _Prioritize(click.Command):
    """Takes a negative number as a priority, which the type of the argument then refuses, and not as
    the name of an option.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        negative = [arg for arg in args if arg[:1] == "-" and arg[1:].isdecimal()]
        if negative and "--" not in args:
            args = [*(arg for arg in args if arg not in negative), "--", *negative]
        return super().parse_args(ctx, args)


@click.command(
    cls=_Prioritize,
    epilog="Example: arkqueue prioritize papers@12 10. The default is 50. A task can set the priority of the tasks behind it in its run, with the output arkqueue.priority; a person's number overrules that.",
)
@_names
@click.argument("priority", metavar="PRIORITY", type=click.IntRange(LEAST_PRIORITY, GREATEST_PRIORITY))
@of_states
@dry_run
@as_json
@calls_server
def prioritize(
    client: Client, names: Sequence[str], priority: int, states: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    """Set the priority of tasks that have not started, inside their archive: lower numbers start
    first.
    """
    act(client, "prioritize", names, {"priority": priority}, as_json, dry_run, states=states)


_runs = click.argument("names", metavar="RUN|ITEM…", nargs=-1, required=True)


@click.command(epilog="Cancel running tasks first. `arkqueue runs --state deleted` lists the runs that were deleted, and `arkqueue show RUN --deleted` the items. Example: arkqueue delete 'papers@12/deposit/*' --state rejected")  # fmt: skip
@click.argument("names", metavar="RUN|ITEM|LIST…", nargs=-1, required=True)
@click.option("--failed", is_flag=True, help="Of RUN/TASK/*: only the items that failed.")
@of_states
@dry_run
@as_json
@calls_server
def delete(
    client: Client, names: Sequence[str], failed: bool, states: Sequence[str], dry_run: bool, as_json: bool
) -> None:
    """Delete a run, an item of a list (RUN/*/KEY) or each item of a list (RUN/TASK/*); none of
    their tasks may be running.

    Its unsettled tasks are canceled. Tasks that wait for its failed tasks go on, as if these were
    waived; behind a deleted item also inside its run. Lists no longer show it, and only a token of
    scope admin can read its history. `arkqueue undelete` brings it back.
    """

    wanted = _with_failed(states, failed)

    def one(name: str) -> tuple[Any, list[str]]:
        found = _run_or_item(client, name, lists=True)
        if found["list"] is not None:
            body = {"list": found["list"], "states": wanted}
            answer = client.post(f"/runs/{found['run']}/delete-items", body, dry_run="true" if dry_run else None)
            return answer, _list_lines(found["full_name"], "delete", answer)
        _refuse_states(found["full_name"], wanted)
        query = {"item": found["item"], "dry_run": "true" if dry_run else None}
        run = client.post(f"/runs/{found['run']}/delete", {}, **query)
        return run, [_deleted(found, run, "deleted"), *_removed_for_good(found, run)]

    each(names, one, as_json, dry_run)


@click.command(epilog="Example: arkqueue undelete papers@12, and then arkqueue release papers@12")
@_runs
@dry_run
@as_json
@calls_server
def undelete(client: Client, names: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Bring a deleted run or item back. Tasks that the deletion canceled come back as held, until
    somebody releases them.
    """

    def one(name: str) -> tuple[Any, list[str]]:
        found = _run_or_item(client, name)
        query = {"item": found["item"], "dry_run": "true" if dry_run else None}
        run = client.post(f"/runs/{found['run']}/undelete", {}, **query)
        return run, [_deleted(found, run, "back")]

    each(names, one, as_json, dry_run)


def _with_failed(states: Sequence[str], failed: bool) -> list[str]:
    """The states of ``--state``, and the state of ``--failed``."""
    return list(dict.fromkeys([*states, *(["failed"] if failed else [])]))


def _refuse_states(name: str, states: Sequence[str]) -> None:
    """Raise ``Invalid`` if states are given for a name that is not a list."""
    from arkqueue.errors import Invalid

    if states:
        fault = "is not the name of a list, and --state and --failed are for lists"
        raise Invalid(name, fault, "Write RUN/TASK/* for the items of a task, or leave the option out.")


def _run_or_item(client: Client, name: str, *, lists: bool = False) -> Any:
    """A run, which may be deleted; an item of a run; or, with ``lists``, a list, by its name."""
    from arkqueue.cli.find import find
    from arkqueue.errors import Invalid

    found = find(client, name, items=True, lists=lists)
    if found["task"] is not None:
        run = found["full_name"].partition("/")[0]
        raise Invalid(found["full_name"], "is the name of a task, not of a run", f"Its run is {run}.")
    return found


def _deleted(found: Any, run: Any, word: str) -> str:
    """The result of a verb on a run, or on an item of it."""
    if found["item"] is None:
        return f"{bold(run['full_name'])}: {state(run['state'])}"
    return f"{bold(found['full_name'])}: {word}; {run['full_name']} is {state(run['state'])}"


def _removed_for_good(found: Any, run: Any) -> list[str]:
    """The line about the attachments of a run that is deleted as a whole: undelete does not bring
    them back.
    """
    there = run["attachments"] if found["item"] is None else None
    if there is None or there["is_removed"]:
        return []
    return [
        f"  its attachments ({files_in_words(there['files'], there['size'])}) are removed, and undelete does not bring them back"
    ]


@click.command(epilog="Example: arkqueue note papers@12/index 'the disk was full; Ann has ordered another one'")
@click.argument("name", metavar="TASK-OR-RUN")
@click.argument("text")
@as_json
@calls_server
def note(client: Client, name: str, text: str, as_json: bool) -> None:
    """Attach a note to a task or a run, for the next person. `arkqueue show` prints the note.

    A failed task with a note no longer counts as a failure that needs somebody.
    """
    from arkqueue.cli.find import find

    found = find(client, name)
    place = f"/runs/{found['run']}" if found["task"] is None else f"/tasks/{found['task']}"
    noted = client.post(f"{place}/note", {"text": text})
    if as_json:
        print_json(noted)
    else:
        say(f"{bold(noted['full_name'])}: noted")


OF_ITEMS = ("cancel", "restart", "retry", "refresh", "skip", "hold", "release", "prioritize")
"""The verbs that take the name of an item, ``RUN/*/KEY``, or of a list, ``RUN/TASK/*``."""
_DONE = {
    "cancel": "canceled or asked to stop",
    "restart": "restarted",
    "retry": "retried",
    "refresh": "polled",
    "skip": "skipped or waived",
    "hold": "held",
    "release": "released",
    "prioritize": "with the new priority",
    "delete": "deleted",
}
"""The words for items of a list on which a verb acted."""


def is_archive(name: str) -> bool:
    """Whether a name can be the name of an archive, but not of a run or task."""
    return bool(name) and "@" not in name and "/" not in name


def act(
    client: Client,
    verb: str,
    names: Sequence[str],
    body: dict[str, Any],
    as_json: bool,
    dry_run: bool,
    of_archive: Callable[[str, Any], list[str]] | None = None,
    *,
    states: Sequence[str] = (),
) -> None:
    """Carry out a verb on tasks, runs, items, lists (on their items in ``states``) and archives
    (with ``of_archive``, which returns the lines to print).
    """
    from arkqueue.cli import backfill
    from arkqueue.cli.client import archive_path
    from arkqueue.cli.find import find
    from arkqueue.errors import Invalid
    from arkqueue.names import is_list

    def post(place: str, more: Mapping[str, Any] = MappingProxyType({})) -> Any:
        return client.post(f"{place}/{verb}", {**body, **more}, dry_run="true" if dry_run else None)

    def one(name: str) -> tuple[Any, list[str]]:
        if states and not is_list(name):
            _refuse_states(name, states)
        if of_archive is not None and is_archive(name):
            answer = post(archive_path(name))
            return answer, of_archive(name, answer) + (_some_done(answer) if dry_run else [])
        if backfill.is_one(name):
            return backfill.act(client, verb, name, body, dry_run)
        found = find(client, name, items=verb in OF_ITEMS, lists=verb in OF_ITEMS)
        if found["list"] is not None:
            if body.get("from_task") is not None:
                fault = "is the name of a list, and --from is for runs and items"
                raise Invalid(found["full_name"], fault, f"Name its run: {found['full_name'].partition('/')[0]}.")
            if body.get("assume_gone"):
                fault = "is the name of a list, and --assume-gone is for tasks"
                raise Invalid(found["full_name"], fault, "Name the task whose process is gone.")
            answer = post(f"/runs/{found['run']}", {"list": found["list"], "states": list(states)})
            return answer, _list_lines(found["full_name"], verb, answer)
        of_item = {} if found["item"] is None else {"item": found["item"]}
        if found["task"] is not None:
            if body.get("failed"):
                fault = "is the name of a task, and --failed is for runs and archives"
                raise Invalid(found["full_name"], fault, "Leave --failed out.")
            if body.get("from_task") is not None:
                fault = "is the name of a task, and --from is for runs and items"
                raise Invalid(found["full_name"], fault, f"Name its run: {found['full_name'].partition('/')[0]}.")
            task = post(f"/tasks/{found['task']}")
            return task, [task_line(task)]
        if body.get("assume_gone"):
            fault = "is the name of a run, and --assume-gone is for tasks"
            raise Invalid(found["full_name"], fault, "Name the task whose process is gone.")
        answer = post(f"/runs/{found['run']}", of_item)
        now = {task["full_name"]: task for task in answer["run"]["tasks"]}
        lines = [task_line(now[done]) for done in answer["done"] if done in now]
        if more := sum(done not in now for done in answer["done"]) if answer["run"]["lists"] else 0:
            lines.append(f"and {more:,} more items")
        return answer, lines + _accepted(answer) + [refusal_line(refusal) for refusal in answer["refused"]]

    each(names, one, as_json, dry_run)


def each(
    names: Sequence[str], act: Callable[[str], tuple[Any, list[str]]], as_json: bool = False, dry_run: bool = False
) -> None:
    """Act on each name. A refusal is printed; then the exit code is 1, or 2 if a name is malformed."""
    from arkqueue.cli.client import Refused, Unreachable
    from arkqueue.errors import ArkqueueError

    answers, code = [], 0
    heading = ["Nothing is changed. It would be:"] if dry_run else []
    for name in names:
        try:
            answer, lines = act(name)
        except Unreachable:
            raise
        except ArkqueueError as error:
            code = max(code, error.exit_code)
            say(f"arkqueue: {visible(str(error))}", err=True)
            others = error.refusals if isinstance(error, Refused) else ()
            for other in others[:MOST_LINES]:
                say(f"arkqueue: {refusal_line(other)}", err=True)
            if len(others) > MOST_LINES:
                say(f"arkqueue: and {len(others) - MOST_LINES} more", err=True)
            continue
        answers.append(answer)
        # A run of which some tasks were refused.
        if isinstance(answer, dict) and (answer.get("refused") or answer.get("left")):
            code = max(code, 1)
        if isinstance(answer, dict) and (left := answer.get("left")):
            judged = sum(len(answer.get(what, ())) for what in ("done", "skipped", "refused"))
            if dry_run:
                text = f"judged {judged} of {tasks(judged + left)} in the time for a trial; the rest was not tried"
            else:
                text = f"{tasks(left)} not reached: the time for one command was over, or the run changed meanwhile. Give the command again for them, unless the run was canceled"
            say(f"arkqueue: {visible(name)}: {text}", err=True)
        if not as_json:
            for line in heading + lines if lines else ():
                say(line)
            heading = [] if lines else heading
    if heading and not as_json:
        say("Nothing is changed, and nothing would be.")
    if as_json and answers:
        print_json(answers[0] if len(names) == 1 else answers)
    if code:
        sys.exit(code)


def task_line(task: Any) -> str:
    """A task with its state, and the reason for the state."""
    why = f" ({visible(task['why'])})" if task["why"] else ""
    why += f", priority {task['priority']}" if task["priority"] != USUAL_PRIORITY else ""
    return f"{bold(task['full_name'])}: {state(task['state'])}{why}"


MOST_LINES = 20
"""The most refusals of an archive's tasks that are printed; for more, only their number is."""


def many_lines(what: str, name: str, answer: Any) -> list[str]:
    """The tasks of an archive on which a verb acted, and the refusals of the others."""
    done, refused = answer["done"], answer["refused"]
    skipped = f", {tasks(len(answer['skipped']))} waived as out of date" if answer["skipped"] else ""
    said = [f"{bold(name)}: {tasks(len(done))} {what}{skipped}" + (f", {tasks(len(refused))} not" if refused else "")]
    if answer["approved"]:
        are = (
            "1 is an approval step" if len(answer["approved"]) == 1 else f"{len(answer['approved'])} are approval steps"
        )
        said += [f"{are}, approved by this:", *_first(answer["approved"])]
    said += _accepted(answer)
    more = [f"and {len(refused) - MOST_LINES} more"] if len(refused) > MOST_LINES else []
    return [*said, *(refusal_line(refusal) for refusal in refused[:MOST_LINES]), *more]


def _accepted(answer: Any) -> list[str]:
    """The runs whose workflow files, which somebody else changed, a release accepts."""
    return [
        f"{bold(visible(run))}: its workflow files are accepted by this (workflow-authors)"
        for run in answer.get("accepted", ())
    ]


def _list_lines(name: str, verb: str, answer: Any) -> list[str]:
    """The items of a list on which a verb acted, and the refusals of the others."""
    done, refused = answer["done"], answer["refused"]
    items = f"{len(done):,} item{'s' if len(done) != 1 else ''}"
    said = f"{bold(name)}: {items} {_DONE[verb]}" + (f", {len(refused):,} not" if refused else "")
    more = [f"and {len(refused) - MOST_LINES:,} more"] if len(refused) > MOST_LINES else []
    return [said, *_first(done), *map(refusal_line, refused[:MOST_LINES]), *more]


def _some_done(answer: Any) -> list[str]:
    """The first tasks of an archive on which a verb would act."""
    return _first([task for task in (*answer["done"], *answer["skipped"]) if task not in answer["approved"]])


def _first(named: Sequence[str]) -> list[str]:
    more = [f"  and {len(named) - MOST_LINES} more"] if len(named) > MOST_LINES else []
    return [*(f"  {visible(task)}" for task in named[:MOST_LINES]), *more]


def tasks(number: int) -> str:
    """A number of tasks, in words."""
    return f"{number} task" if number == 1 else f"{number:,} tasks"


def refusal_line(refusal: Any) -> str:
    """The line about a refusal: the task, the reason and the remedy."""
    from arkqueue.cli.client import as_sentence

    remedy = f". {as_sentence(refusal['remedy'])}" if refusal["remedy"] else ""
    return click.style(visible(refusal["reason"] + remedy), fg="yellow")


def _waiver(name: str) -> tuple[str, str | None, str]:
    """The archive, the branch and the task of ``ARCHIVE/TASK`` or ``ARCHIVE:BRANCH/TASK``."""
    from urllib.parse import unquote

    place, slash, task = name.partition("/")
    archive, colon, branch = place.partition(":")
    if not slash or not archive or not task or "@" in place or "/" in task:
        raise click.UsageError(f"With --until, write ARCHIVE/TASK, for example papers/index, not {name}.")
    return unquote(archive), unquote(branch) if colon else None, unquote(task)


def _waive(
    client: Client, archive: str, branch: str | None, task: str, until: int, dry_run: bool
) -> tuple[Any, list[str]]:
    from arkqueue.cli.client import archive_path
    from arkqueue.errors import Conflict

    body = {"task": task, "until": until, "branch": branch}
    answer = client.post(f"{archive_path(archive)}/skip", body, dry_run="true" if dry_run else None)
    count = answer["waived"]
    if not count:
        raise Conflict(f"{archive}/{task}", f"has no failure up to {until} that nobody waived")
    waived = f"{bold(f'{archive}/{task}')}: {count} failure{'s' if count != 1 else ''} up to {until} waived"
    return answer, [waived, *map(refusal_line, answer["refused"])]
