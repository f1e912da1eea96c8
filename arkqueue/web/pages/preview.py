"""The preview of an action. It executes the action and rolls it back to find the states that tasks
would have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from arkqueue.archives.retention import purge_by_age
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, Forbidden, NotFound
from arkqueue.model import RunId, TaskId
from arkqueue.names import EVERY_TASK, Name, as_backfill, is_list, parse_branch, parse_name
from arkqueue.queue.done import Done
from arkqueue.queue.purge import purge_runs
from arkqueue.queue.removal import holders_of
from arkqueue.states import RunState, State
from arkqueue.text import files_in_words
from arkqueue.views.archives import Contents, RewoundView
from arkqueue.views.attempts import attempts
from arkqueue.views.find import check_list, find_item, find_run, find_task
from arkqueue.views.naming import task_names
from arkqueue.views.runs import views_of_runs
from arkqueue.views.tasks import task as show_task
from arkqueue.web.access import Caller
from arkqueue.web.api.archives import Rewind, Waiver
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.forms import Meant
from arkqueue.web.pages.refusals import REMOVALS, Overruled, offers_of, refused_tasks

MOST_LOOKED_AT: Final = 20_000
"""The most tasks whose states are compared."""
MOST_NAMED: Final = 12
"""The most tasks of one consequence that are named; the others are counted."""
QUESTIONS: Final = {
    "cancel": "Its unsettled tasks are canceled; running ones are stopped.",
    "assume-gone": "Its task manager is silent. Do this only if its machine is off: otherwise the task may still run there.",
    "restart": "Its running tasks are stopped, and start again.",
    "refresh": "The polls of its deferred tasks run now.",
    "skip": "Later runs go on without it. Tasks of its own run that wait for it stay skipped.",
    "skip-as-completed": "Tasks that wait for it go on as if it had completed, also in its own run.",
    "retry": "Failed tasks run again, and then the tasks that were skipped because of them.",
    "retry-from": "The task and all tasks behind it run again, also completed ones.",
    "delete": "It no longer appears in lists, counts and reports, and tasks that waited for it go on without it. It can be undeleted.",
    "undelete": "It is listed again. Tasks that its deletion canceled come back as held, and wait for a release.",
    "release": "Its held tasks may start, approval steps too.",
    "hold": "Its tasks that have not started wait for a release.",
    "prioritize": "Its tasks that have not started go before or after others of the archive, by the new number.",
}
"""The verbs whose consequences are shown first, and their meaning."""
OF_A_TASK: Final = {
    "cancel": "It does not start any more; if it runs, it is stopped.",
    "restart": "It is stopped, and starts again.",
}
"""The meaning of the verbs of `QUESTIONS` that have other words for a single task."""
IF_REFUSED: Final = {"release": "Its held tasks may start, except for those that stay held."}
"""The meaning of a verb that is refused for some of the tasks."""
IF_WAIVED: Final = "Its held tasks that are out of date are waived, and later runs go on without them. The others may start, approval steps too."
"""The meaning of a release that waives some of the tasks."""
_PLAIN: Final = {"retry": "retry", "retry-from": "retry", "release": "release", "skip-as-completed": "waiver as completed"}  # fmt: skip
"""The verbs that take options against a refusal, as nouns."""
WAIVED: Final = "waived"
"""The word for a failure that keeps its state, or a held task that is skipped, and after which other
tasks may go on.
"""
ACCEPTED: Final = "accepted with workflow files that somebody else has changed (workflow-authors)"
_OF_A_DELETION: Final = ("delete", "undelete")
"""The verbs after which the state of a run is known from the verb."""
OF_A_PURGE: Final = {
    "from": "",
    "refused": (),
    "count": 0,
    "offers": (),
    "is_all": True,
    "is_asked_why": True,
    "_fields": (),
}
"""The fields that all previews of purges share: nothing is refused, and a reason is asked for."""
_WORDS: Final = {
    State.CANCELED: "canceled",
    State.SKIPPED: "skipped",
    State.READY: "free to start",
    State.WAITING: "waiting",
    State.HELD: "held",
    State.COMPLETED: "passed",
}
_BEFORE: Final = {
    "cancel": ("Cancel", "cancel it"), "restart": ("Restart", "restart it"), "refresh": ("Poll", "poll it"), "skip": ("Waive", "waive it"), "skip-as-completed": ("Count as completed", "count it as completed"),
    "delete": ("Delete", "delete it"), "undelete": ("Undelete", "undelete it"), "release": ("Release", "release it"), "hold": ("Hold", "hold it"), "retry": ("Retry", "retry it"),
    "retry-from": ("Run again", "run it again"), "purge": ("Purge", "purge it for good"), "assume-gone": ("Count as gone", "count it as gone"), "prioritize": ("Change the priority of", "change it"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Consequence:
    """The effect on some tasks, or on another kind of ``thing``, in ``words``. ``state``: the state
    that the tasks would have. ``names``: the first of them.
    """

    words: str
    count: int
    names: list[str]
    state: str = "deleted"
    thing: str = "task"


def is_shown_first(name: str, verb: str) -> bool:
    """Whether an action is carried out only after its consequences were shown, because it destroys,
    or concerns many tasks.
    """
    if is_list(name):
        return True
    if verb == "release":
        return "/" not in name.partition("@")[2]
    if verb in ("hold", "prioritize", "refresh"):
        return False
    return verb in QUESTIONS and (verb != "retry" or "@" not in name)


def _is_task(name: str) -> bool:
    """Whether a name is that of a single task: not of an archive, a run, an item or a list."""
    return "/" in name.partition("@")[2] and not is_list(name) and parse_name(name).task != EVERY_TASK


def list_run(caller: Caller, name: Name) -> RunId:
    """The run of a list that is named ``RUN/TASK/*``."""
    run = caller.run(RunId(find_run(caller.session, replace(name, task=None, item=""))))
    check_list(caller.session, run, name.task or "")
    return run


def preview(
    caller: Caller, name: str, verb: str, how: Meant, back: str, do: Callable[[Caller, Meant], object]
) -> Shown:
    """The changes that ``do`` would make, with the button for it, and the refusal that the options of
    the button overrule. Raises the refusal that ``do`` would meet.
    """
    if verb not in QUESTIONS:
        raise NotFound(f"the action {verb!r}", "does not exist on this page", "Open the page again.")
    run, of = _concerned(caller, name, verb)
    question = (_is_task(name) and OF_A_TASK.get(verb)) or QUESTIONS[verb]
    if verb == "delete" and run is not None and "/" not in name.partition("@")[2]:
        question += _removed_for_good(caller.session, run)
    kind = Consequence("deleted", 0, [], thing="item") if verb == "delete" else None
    done, found, is_all, states = _rehearsed(caller, of, run, lambda rehearsed: do(rehearsed, how), kind)
    words, yes = _BEFORE[verb]
    title = f"{words} {name}"
    if done.refused:
        question = IF_REFUSED.get(verb, question)
    if done.skipped:
        title, yes, question = f"{title}, and waive what is out of date", f"waive and {yes}", IF_WAIVED
    return Shown(
        "preview.html",
        {
            "name": name,
            "run_states": states if verb not in _OF_A_DELETION else (),
            "from": how.task if verb == "retry-from" else "",
            "verb": verb,
            "words": words,
            "title": title,
            "yes": yes,
            "question": question,
            "overruled": _overruled(caller, of, how, verb, do, done) if how.is_forced else None,
            "consequences": found,
            "refused": refused_tasks(caller, done),
            "count": len(done.refused),
            "offers": [one for one in offers_of(done, name, verb) if not getattr(how, one.option)],
            "is_all": is_all,
            "back": back,
            "is_asked_why": verb in ("release", "hold"),
            "given": how.text,
            "state": how.state,
            "_fields": _fields(how),
        },
    )


def _overruled(
    caller: Caller, of: dict[str, int], how: Meant, verb: str, do: Callable[[Caller, Meant], object], forced: Done
) -> Overruled | None:
    """The first refusal that the options of a verb overrule, from a second rehearsal; None: there is
    none. ``forced``: the result with the options, which may be refused for some tasks all the same.
    """
    plain = replace(how, force=False, from_start=False, skip_outdated=False)
    whys: list[Any] = []
    is_whole = False
    try:
        with caller.acting(True, **of) as rehearsed:
            done = do(rehearsed, plain)
        whys += [one.why for one in done.refused] if isinstance(done, Done) else []
    except (Conflict, Forbidden) as error:
        whys, is_whole = [error, *error.others], True
    still = {one.why.thing for one in forced.refused}
    why = next((why for why in whys if why.thing not in still), None)
    return Overruled(_PLAIN.get(verb, "action"), why, is_whole) if why else None


def _removed_for_good(session: Session, run: int) -> str:
    """The sentence about the attachments of a run, which its deletion removes; empty if it has none."""
    for there in session.rows("attachments_of_run", run=run):
        if not there.is_removed:
            return f" Its attachments ({files_in_words(there.files, there.size)}) are removed, and do not come back."
    return ""


def _rehearsed(
    caller: Caller,
    of: dict[str, int],
    run: int | None,
    do: Callable[[Caller], object],
    kind: Consequence | None = None,
) -> tuple[Done, list[Consequence], bool, tuple[RunState, ...]]:
    """The result of ``do``, which is undone at the end, the effects on tasks, whether all tasks
    were compared, and the states of the run before and after it, if it changes. ``of``: the thing
    itself, as arguments of ``Caller.acting``. ``kind``: what the verb does to the things on which it
    acts, if that is no new state.
    """
    archive = of.get("archive") or _archive(caller, of)
    with caller.acting(True, archive=archive) as rehearsed:
        before = _locked(rehearsed.session, archive, run)
        was = _states(rehearsed.session, run)
        done = do(rehearsed)
        done = done if isinstance(done, Done) else Done()
        after = rehearsed.session.rows("states_of", tasks=list({*before, *done.tasks}))
        found = _consequences(rehearsed.session, before, after, done.skipped)
        if kind and done.tasks:
            first = sorted(done.tasks)[:MOST_NAMED]
            named = task_names(rehearsed.session, first)
            found.insert(0, replace(kind, count=len(done.tasks), names=[named[id] for id in first if id in named]))
        if done.accepted:
            found.insert(0, Consequence(ACCEPTED, len(done.accepted), done.accepted[:MOST_NAMED], State.HELD, "run"))
        becomes = _states(rehearsed.session, run)
    is_begun = RunState.PROCESSING in becomes and any(_is_claimed(before.get(row.id), row) for row in after)
    return done, found, len(before) < MOST_LOOKED_AT, (*was, *becomes) if was != becomes and not is_begun else ()


def _locked(session: Session, archive: int, run: int | None) -> dict[int, Any]:
    """The states of tasks before a rehearsed verb acts, by their ids. The archive is locked first, so
    nobody else changes a state until the rehearsal ends, except task managers that claim tasks.
    """
    around = ("states_around", {"archive": archive, "run": run, "limit": MOST_LOOKED_AT})
    lock = ("lock_archives", {"archives": [archive]})
    _, found = session.retrying_after([lock, around], lambda _, read, __: read)
    return {row.id: row for row in found}


def _is_claimed(old: Any | None, new: Any) -> bool:
    """Whether a task manager claimed a task during a rehearsal: no verb makes a task run."""
    return old is not None and old.state != State.RUNNING and new.state == State.RUNNING


def _states(session: Session, run: int | None) -> tuple[RunState, ...]:
    """The state of a run, if there is one."""
    return tuple(one.state for one in views_of_runs(session, [run])) if run is not None else ()


def preview_of_waiver(caller: Caller, name: str, waiver: Waiver, back: str, do: Callable[[Caller], Done]) -> Shown:
    """The failures of a task that ``do`` would waive, and the tasks that would then go on. Raises
    the refusal that ``do`` would meet.
    """
    kind = Consequence(WAIVED, 0, [], State.FAILED, "failure")
    done, found, is_all, _ = _rehearsed(caller, {"archive": caller.archive(name)}, None, do, kind)
    if not done.tasks:
        raise Conflict(f"{name}/{waiver.task}", f"has no failure up to {waiver.until} that nobody waived")
    return _administered(
        name,
        {"task": waiver.task, "revision": str(waiver.until), "branch": waiver.branch or ""},
        back,
        verb="waive",
        words="Waive failures of",
        title=f"Waive the failures of {name}/{waiver.task} up to revision {waiver.until}",
        yes="waive them" if len(done.tasks) > 1 else "waive it",
        question="Tasks that wait for a waived failure may go on without it, in later revisions.",
        consequences=found,
        refused=refused_tasks(caller, done),
        count=len(done.refused),
        is_all=is_all,
    )


def preview_of_rewind(name: str, rewind: Rewind, rewound: RewoundView, back: str) -> Shown:
    """The effects that a rewind would have. ``rewound``: the result of its dry run."""
    history = f"{name}:{rewound.history}"
    found = [
        Consequence(f"kept as those of {history}", rewound.runs, [], State.COMPLETED, "run"),
        Consequence("canceled, as they have not started", rewound.canceled, [], State.CANCELED),
        Consequence("left to run to the end", rewound.running, [], State.RUNNING),
    ]
    notes = [
        rewound.note and f"Revision {rewound.note}.",
        rewound.stopped and f"The archive would stay stopped: {rewound.stopped}.",
    ]
    question = (
        "The ledger starts anew after this revision, and later revisions of the repository are planned as new ones."
        f" The ledger so far stays readable as {history}. This cannot be undone."
    )
    return _administered(
        name,
        {"revision": str(rewind.revision), "branch": rewind.branch or ""},
        back,
        verb="rewind",
        words="Rewind",
        title=f"Rewind {name} to revision {rewind.revision}",
        yes="rewind it",
        question=" ".join([question, *filter(None, notes)]),
        consequences=[one for one in found if one.count],
        refused=(),
        count=0,
        is_all=True,
    )


def preview_of_archive_removal(name: str, contents: Contents, back: str) -> Shown:
    """The effects of the removal of an archive."""
    size = f"{'more than ' * contents.has_more}{contents.log_bytes / (1 << 20):,.1f} MiB"
    found = [
        Consequence(
            "canceled, as it has not started" if contents.open == 1 else "canceled, as they have not started",
            contents.open,
            [],
            State.CANCELED,
        ),
        Consequence("left to run to the end", contents.running, [], State.RUNNING),
        Consequence("dropped", contents.schedules, [], State.CANCELED, "schedule"),
        Consequence(
            f"kept, with logs of {size}" if contents.log_bytes else "kept", contents.runs, [], State.COMPLETED, "run"
        ),
        Consequence("kept", contents.submissions, [], State.COMPLETED, "submission"),
    ]
    return _administered(
        name,
        {"text": name},
        back,
        verb="remove-archive",
        words="Remove",
        title=f"Remove {name}",
        yes="remove it",
        question="arkqueue no longer watches the archive. Its history stays readable, and is purged by its age as its settings say.",
        consequences=[one for one in found if one.count],
        refused=(),
        count=0,
        is_all=True,
    )


def _administered(name: str, fields: dict[str, str], back: str, *, title: str, **more: Any) -> Shown:
    """The preview of a form of the administration pages, which offers no option and asks for no
    reason. ``fields``: the fields of the form, to be sent again with the confirmation.
    """
    on = f" of {branch}" if (branch := fields.get("branch")) else ""
    names = {"name": name, "from": "", "offers": (), "is_asked_why": False, "is_administered": True, "back": back}
    sent = [(field, value) for field, value in fields.items() if value]
    return Shown("preview.html", {**names, "title": f"{title}{on}", "_fields": sent, **more})


def _fields(how: Meant) -> list[tuple[str, str]]:
    """The options of the button, as the fields of the form that confirms it."""
    given = {name: "yes" if value is True else value for name, value in asdict(how).items()}
    return [(name, str(value)) for name, value in given.items() if value]


def preview_of_purge(caller: Caller, name: str, back: str) -> Shown:
    """The data that a purge of a run, or by age of an archive, would remove. Raises the refusal
    that the purge would meet.
    """
    if "@" in name:
        parsed = parse_name(name)
        caller.archive(parsed.archive)
        run = RunId(find_run(caller.session, parsed))
        done = purge_runs(caller.session, [caller.run(run)], caller.by, dry_run=True).unless_kept()
        size = caller.session.rows("size_of_run", run=run)[0]
        found = [
            Consequence("purged", size.tasks, [], thing="task"),
            Consequence("purged", size.attempts, [], thing="attempt"),
        ]
        question = f"{done.runs[0]} goes for good, with its attempts, logs and outputs. This cannot be undone."
    else:
        archive, _ = parse_branch(name)
        aged = purge_by_age(caller.session, caller.archive(archive), caller.by, dry_run=True)
        found = [Consequence("purged", len(aged.runs), aged.runs[:MOST_NAMED], thing="run")] if aged.runs else []
        found += [Consequence("removed", aged.logs, [], thing="log")] if aged.logs else []
        question = "Removes for good what its settings keep and keep-logs no longer keep, as arkqueue does by itself each hour. This cannot be undone."
    return Shown(
        "preview.html",
        {
            "name": name,
            **OF_A_PURGE,
            "verb": "purge",
            "words": _BEFORE["purge"][0],
            "yes": _BEFORE["purge"][1],
            "question": question,
            "consequences": [one for one in found if one.count],
            "back": back,
            "export": name if "@" in name else "",
            "export_command": "" if "@" in name else f"arkqueue purge {name} --export {name}.jsonl",
        },
    )


def preview_of_removal(caller: Caller, name: str, verb: str, reason: str, back: str) -> Shown:
    """The logs or outputs of a task that a removal would delete, and the places that may still have
    them. Raises the refusal that the removal would meet.
    """
    parsed, what = parse_name(name), REMOVALS.get(verb)
    caller.archive(parsed.archive)
    task = caller.task(find_task(caller.session, parsed))
    if what is None:
        raise NotFound(f"the action {verb!r}", "does not exist on this page", "Open the page again.")
    is_log = what == "log"
    holders = holders_of(caller.session, task, log=is_log, outputs=not is_log)
    ended = [one for one in attempts(caller.session, task) if one.ended_at is not None]
    logs = [one for one in ended if one.log_bytes and not one.log_removed]
    outputs = [one for one in ended if one.outputs and not one.outputs_removed]
    bytes = f" ({sum(one.log_bytes for one in logs):,} bytes)" if is_log else ""
    number = len(logs) if is_log else len(outputs)
    question = "The messages of its attempts are removed, too. Your reason takes their place, and everybody who may see the task sees it. This cannot be undone."
    return Shown(
        "preview.html",
        {
            "name": name,
            **OF_A_PURGE,
            "verb": verb,
            "words": f"Purge the {what} of",
            "yes": "purge it for good" if is_log else "purge them for good",
            "question": question,
            "consequences": [Consequence(f"removed{bytes}", number, [], thing="log" if is_log else "output")]
            if number
            else [],
            "back": back,
            "why": "Why? (others will see it)",
            "reason": reason,
            "holders": [*holders, "backups and dumps that were made before"],
        },
    )


def _concerned(caller: Caller, name: str, verb: str) -> tuple[int | None, dict[str, int]]:
    """The run that an action concerns, if any, and the thing itself, as arguments of
    ``Caller.acting``.
    """
    if "@" not in name or as_backfill(name):
        archive = parse_branch(name)[0] if "@" not in name else name.partition("@")[0]
        return None, {"archive": caller.archive(archive)}
    parsed: Name = parse_name(name)
    caller.archive(parsed.archive)
    if is_list(name):
        run = list_run(caller, parsed)
    elif parsed.task == EVERY_TASK and parsed.item:
        run = find_item(caller.session, parsed)
    elif parsed.task is None:
        run = find_run(caller.session, parsed)
    else:
        task = caller.task(find_task(caller.session, parsed))
        return show_task(caller.session, TaskId(task)).run_id, {"task": task}
    return run, {"run": caller.run(RunId(run), also_deleted=verb == "undelete")}


def _archive(caller: Caller, of: dict[str, int]) -> int:
    (kind, id), *_ = of.items()
    return int(caller.session.rows(f"archive_of_{kind}", id=id)[0].id)


def _consequences(
    session: Session, before: dict[int, Any], after: Sequence[Any], waived: Collection[int]
) -> list[Consequence]:
    """The effects on tasks. ``waived``: the tasks that the verb waived instead of released."""
    groups: dict[tuple[State, str], list[int]] = {}
    for row in after:
        old = before.get(row.id)
        if row.stops and not (old is not None and old.stops):
            groups.setdefault((State.RUNNING, "stopped"), []).append(row.id)
        elif _is_claimed(old, row):
            continue
        elif old is not None and row.state == old.state and row.waived and not old.waived:
            groups.setdefault((State(row.state), WAIVED), []).append(row.id)
        elif old is None and row.state in (State.FAILED, State.REJECTED):
            continue  # it has failed before: no verb makes a task that is settled fail
        elif old is None or row.state != old.state:
            state = State(row.state)
            words = WAIVED if row.id in waived else _WORDS.get(state, str(state))
            groups.setdefault((state, words), []).append(row.id)
    named = task_names(session, [id for ids in groups.values() for id in ids[:MOST_NAMED]])
    return [
        Consequence(
            words,
            len(ids),
            [named[id] for id in ids[:MOST_NAMED]],
            state,
            "failure" if words == WAIVED and state is not State.SKIPPED else "task",
        )
        for (state, words), ids in groups.items()
    ]
