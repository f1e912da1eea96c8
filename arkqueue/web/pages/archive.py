"""The page of an archive or a branch: revisions are rows, and tasks are columns, in the order of
the newest workflow files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.model import ArchiveId, BranchId, Trigger
from arkqueue.names import COMMIT_RUN, branch_name
from arkqueue.states import RunState, State
from arkqueue.views import archives as views
from arkqueue.views.attention import (
    Blocking,
    Unhandled,
    blocking_in,
    failing_backfills,
    failures_elsewhere,
    faulty_at_head,
    newest_definition,
    unhandled_failures,
)
from arkqueue.views.backfills import backfills, in_public
from arkqueue.views.coming import Coming, coming
from arkqueue.views.find import find_branch
from arkqueue.views.runs import ListedRun, RunPage, RunView, matching_runs, runs, unhandled_runs
from arkqueue.views.search import query_of
from arkqueue.views.submissions import for_submissions
from arkqueue.web.pages.answer import HEADERS, Shown, asked, local, run_sentence, sent_path
from arkqueue.web.pages.approving import OfGrid, refused_in_grid
from arkqueue.web.pages.cells import heads_of, menu_of, parts_of
from arkqueue.web.pages.drawing import MOST_DRAWN, drawn
from arkqueue.web.pages.feeds import badge, feed
from arkqueue.web.pages.grid import MOST_CELLS, Row, grid_of, row_of
from arkqueue.web.pages.series import Line, lines_of, runs_in_lines, stand_ins
from arkqueue.web.pages.visitor import Visitor
from arkqueue.web.pages.withheld import Withheld, withheld

ROWS: Final = 50
"""The most rows of a page."""
MOST_RUNS: Final = 100
"""The most runs that a page reads to fill its lines, if one line stands for many runs."""
MOST_OPENED: Final = 50
"""The most lines of the grid that an address opens."""
KEPT: Final = ("before", "columns", "gone")
"""The parameters that the address of a page keeps when a line of the grid is opened."""
RUN_STATES: Final = tuple(state for state in RunState if state is not RunState.DELETED)
UNHANDLED: Final = "unhandled"
"""The word instead of a state for runs with failures that nobody has handled."""
MOST_BACKFILLS: Final = 3
MOST_HELD: Final = 3
"""The most held tasks that the sentence above the grid names."""
MOST_RUNNING: Final = 3
"""The most tasks in another state that this sentence names."""
_MAY_GO_ON: Final = (State.READY, State.DEFERRED)
"""The states of tasks that go on without a person and without another task."""
EXAMPLE_IMAGE: Final = "debian:stable-slim"
"""The image of the first workflow that a page shows, if its task has to name one."""
MOST_TOLD: Final = 5
"""The most failures that the sentence above the grid names."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The filter of a page's runs, from its address. ``state``: of the run or, if a task is named,
    of that task.
    """

    state: str
    author: str
    task: str
    message: str

    @property
    def address(self) -> str:
        """The query of an address; empty if all runs are shown."""
        return urlencode({name: value for name, value in asdict(self).items() if value})


def address_with(request: Request, **changes: str) -> str:
    """The query of an address with the filter and the columns of this page, and some parameters
    changed; an empty value removes a parameter.
    """
    named = [*Filter.__dataclass_fields__, "columns", "gone"]
    kept = [one for one in request.query_params.multi_items() if one[0] in named and one[0] not in changes and one[1]]
    pairs = [*kept, *(one for one in changes.items() if one[1])]
    return f"?{urlencode(pairs, safe=',')}" if pairs else ""


def _clean(request: Request) -> str | None:
    """The query of a form as a person would write it: without empty fields, and with the columns in
    one list. None: it is like this.
    """
    pairs = request.query_params.multi_items()
    columns = [value for name, value in pairs if name == "columns" and value]
    if len(columns) < 2 and all(value for _, value in pairs):
        return None
    kept = [(name, value) for name, value in pairs if value and name != "columns"]
    query = urlencode([*kept, *([("columns", ",".join(columns))] if columns else [])], safe=",")
    return f"?{query}" if query else ""


def filter_of(request: Request) -> Filter:
    """The filter in an address; a word that is not a state is ignored."""
    given = {name: asked(request, name) for name in Filter.__dataclass_fields__}
    if given["state"] not in [UNHANDLED, *(str(state) for state in (State if given["task"] else RUN_STATES))]:
        given["state"] = ""
    return Filter(**given)


def archive(visitor: Visitor, request: Request, name: str, named: str | None) -> Shown | Response:
    """The newest runs of a branch, or those of a `Filter`. ``?before=``: the id of a run; only
    earlier runs are shown.
    """
    caller = visitor.caller
    id = caller.archive(name)
    view = views.archive(caller.session, id)
    view = views.in_public(view) if visitor.is_anybody else view
    try:
        branch = find_branch(caller.session, id, named, name)
    except NotFound:
        if named is not None or any(b.rev is not None for b in view.branches):
            raise
        return Shown("archive.html", _nothing_yet(visitor, view))
    label = branch_name(name, named)
    if (form := asked(request, "format")) == "svg":
        return badge(caller, view, branch, label)
    if form == "atom":
        return feed(request, caller, id, branch, label, view.created_at)
    if "format" not in request.query_params and (clean := _clean(request)) is not None:
        return RedirectResponse(f"{local(sent_path(request))}{clean}", 303, HEADERS)
    return Shown("archive.html", _branch_shown(visitor, request, view, branch, named))


def _branch_shown(
    visitor: Visitor, request: Request, view: views.ArchiveView, branch: BranchId, named: str | None
) -> dict[str, object]:
    """The page of a branch. ``named``: the branch's name in the address."""
    session, id, name = visitor.caller.session, ArchiveId(view.id), view.name
    present = [b for b in view.branches if not b.deleted]
    wanted, before = filter_of(request), request.query_params.get("before", "")
    faulty = faulty_at_head(session, branch)
    columns = [name for text in request.query_params.getlist("columns") for name in text.split(",") if name]
    chosen = [*dict.fromkeys(columns)]
    defined = newest_definition(session, branch)
    most = _most_rows(len(chosen or defined))
    page, failures, blocking, needing = _page(visitor, id, branch, wanted, before, faulty, most)
    shown, is_newest = page.runs, not (wanted.address or before)
    with session.snapshot() as moment:  # so that the numbers of a list and its state agree
        grid = grid_of(
            moment,
            branch,
            shown,
            defined,
            is_newest=is_newest,
            needs={**blocking.cells, **failures.cells},
            blocking=blocking.tasks,
            chosen=chosen,
            all_names=asked(request, "gone") == "yes",
            seen=visitor.caller.archives(),
        )
        heads = _newest_runs(moment, id, branch, shown if is_newest else None, most)
        row = _open_row(moment, branch, heads, grid.rows if is_newest and not chosen else (), visitor)
    submissions = for_submissions(session, id, named)
    lines = [Line(None, [row]) for row in grid.rows] if wanted.address else _lines(request, grid.rows, needing)
    guarded = refused_in_grid(visitor, view, grid.rows)
    return {
        "archive": view,
        **removal_shown(visitor, view),
        "_refused": _withheld(view).refused_in_grid(guarded, grid.rows, blocking.tasks),
        "_why_guarded": guarded.why,
        "address": branch_name(name, named),
        "branch": named or next((b.name for b in view.branches if b.main), ""),
        "branches": present,
        "rows": grid.rows,
        "_lines": lines,
        "_heads": heads_of,
        "_menu": menu_of,
        "_parts": partial(parts_of, stand_ins=stand_ins(lines, grid.rows)),
        "columns": grid.columns,
        "groups": grid.groups,
        "gone": grid.gone,
        "names": grid.names,
        "chosen": chosen,
        "next": page.next if len(grid.rows) == len(shown) else grid.rows[-1].run.id,
        "is_later_page": bool(before),
        **_filter_shown(request, wanted),
        "_further": _further(
            request,
            failures,
            [row.run.id for row in grid.rows],
            most if len(grid.rows) == len(shown) else len(grid.rows),
        ),
        **_newest_shown(heads, row),
        "faulty": faulty,
        "failures": failures.newest[: MOST_TOLD - (faulty is not None)],
        "failed": failures.count + (faulty is not None),
        "elsewhere": failures_elsewhere(session, id, branch, MOST_TOLD) if len(present) > 1 else [],
        "takes_submissions": view.removed_at is None and bool(submissions.tasks),
        "may_trigger": submissions.may_be_triggered,
        **_backfills(visitor, id, branch),
        "rare": _rare(visitor, view, failures.count),
        **_first_workflow(visitor, view),
        **_coming(visitor, name, branch if [run.baseline for run in shown] == [True] and not wanted.address else None),
    }


def _backfills(visitor: Visitor, archive: ArchiveId, branch: BranchId) -> dict[str, object]:
    """The newest backfills of an archive. ``_alarming``: the names of all backfills with unhandled failures.
    ``_failing``: the numbers of these failures, by name, for backfills of the branch. ``_older``: the
    newest names of ``_failing`` that the page does not show anyway.
    """
    session = visitor.caller.session
    newest = backfills(session, archive, MOST_BACKFILLS)
    of_all = failing_backfills(session, archive) if newest else {}
    failing = {name: count for name, (of, count) in of_all.items() if of == branch}
    names = {one.full_name for one in newest}
    return {
        "backfills": [in_public(one) if visitor.is_anybody else one for one in newest],
        "_alarming": {*of_all},
        "_failing": failing,
        "_older": [name for name in failing if name not in names][:MOST_TOLD],
    }


def _newest_shown(heads: Sequence[ListedRun], row: Row | None) -> dict[str, object]:
    """The newest run of a branch, and the newest completed one. ``heads``: the newest runs. ``row``:
    the row of the newest one, if it is open.
    """
    return {
        "newest": heads[0] if heads else None,
        "_newest_words": words_of_newest(row) if row else run_sentence(heads[0]) if heads else "",
        "_newest_ends": row.ends if row else None,
        "complete": _newest_completed(heads),
    }


def _filter_shown(request: Request, wanted: Filter) -> dict[str, object]:
    """The filter of a page, and the addresses with another one."""
    return {
        "filter": wanted,
        "filter_address": wanted.address,
        "_address": partial(address_with, request),
        "_not_a_state": "" if wanted.state else asked(request, "state"),
        "_all_runs": address_with(request, **dict.fromkeys(Filter.__dataclass_fields__, "")),
        "states": [UNHANDLED, *(str(one) for one in (State if wanted.task else RUN_STATES))],
    }


def _page(
    visitor: Visitor,
    id: ArchiveId,
    branch: BranchId,
    wanted: Filter,
    before: str,
    faulty: RunView | None,
    most: int,
) -> tuple[RunPage, Unhandled, Blocking, set[int]]:
    """The runs of a page, the unhandled failures of the branch, the repaired ones of these runs for which
    tasks wait, and the ids of the runs that keep a row of their own. ``before``: the id of a run, from
    the address. ``most``: the most rows.

    A page without a filter has as many lines as there is room for. One line may stand for many runs.
    """
    known, runs, next = faulty.id if faulty else None, list[ListedRun](), None
    at = int(before) if before.isdecimal() and len(before) < 19 else None
    while True:
        page = _runs(visitor, id, branch, wanted, next or at, known, most)
        runs, next = runs + page.runs, page.next
        failures = unhandled_failures(visitor.caller.session, id, branch, MOST_TOLD, [run.id for run in runs], most)
        bad = [run.id for run in runs if run.counts.failed or run.counts.rejected]
        blocking = blocking_in(visitor.caller.session, id, bad, failures.cells)
        needing = {run for run, _ in [*failures.cells, *blocking.cells]} | {run.id for run in runs[:1] if not before}
        is_full = len(runs) >= MOST_RUNS or len(runs_in_lines(runs, needing)) >= most
        if next is None or wanted.address or is_full:
            return RunPage(runs=runs, next=next), failures, blocking, needing


def _most_rows(width: int) -> int:
    """The most rows of a page with ``width`` columns. Some rows have few cells, so these are twice as
    many rows as `MOST_CELLS` has room for.
    """
    return min(ROWS, 2 * MOST_CELLS // max(width, 1) + 1)


def _further(request: Request, failures: Unhandled, shown: Sequence[int], most: int) -> dict[str, str]:
    """The queries of the addresses of ``earlier`` and ``later`` runs with failures that nobody has
    handled, if there are any. ``shown``: the rows of the page, which may have had no room for the
    last runs; ``most``: the most rows of a page.
    """
    found = {}
    if shown and (failures.is_earlier or any(run < shown[-1] for run, _ in failures.cells)):
        found["earlier"] = address_with(request, state=UNHANDLED, before=str(shown[-1]))
    if failures.later:
        after = failures.later[most] if len(failures.later) > most else ""
        found["later"] = address_with(request, state=UNHANDLED, before=str(after))
    return found


def _lines(request: Request, rows: Sequence[Row], needing: Collection[int]) -> list[Line]:
    """The lines of a page without a filter. The address says which lines are open."""
    opened = [one for one in request.query_params.getlist("open")[:MOST_OPENED] if one.isdecimal() and len(one) < 19]
    kept = [one for one in request.query_params.multi_items() if one[0] in KEPT]
    return lines_of(rows, needing, set(map(int, opened)), kept)


def _newest_runs(
    session: Session, archive: ArchiveId, branch: BranchId, shown: Sequence[ListedRun] | None, most: int
) -> Sequence[ListedRun]:
    """The newest commit runs of a branch, whatever its page shows, the newest first. ``shown``: the
    newest runs of the branch, if the page shows these.
    """
    if shown is None:
        asked: dict[str, Any] = {"trigger": Trigger.COMMIT, "limit": most, "backfills": False}
        return runs(session, archives=[archive], branch=branch, **asked).runs
    return [run for run in shown if run.trigger is Trigger.COMMIT]


def _open_row(
    session: Session, branch: BranchId, heads: Sequence[ListedRun], rows: Sequence[Row], visitor: Visitor
) -> Row | None:
    """The newest commit run of a branch with all of its tasks, if it has not settled. ``rows``: the
    rows of a page that has all columns.
    """
    if not heads or heads[0].settled_at is not None:
        return None
    shown = next((row for row in rows if row.run.id == heads[0].id), None)
    return shown or row_of(session, branch, heads[0], visitor.caller.archives())


def words_of_newest(row: Row) -> str:
    """The state of a run that has not settled as the end of a sentence, with its running tasks, or
    else with its ready or deferred ones. A run in which nothing happens before a release, or before a
    task of another run, says so.
    """
    newest, tasks = row.run, [cell.task for cell in row.cells if cell]
    if running := [task.name for task in tasks if task.state is State.RUNNING]:
        return f"{run_sentence(newest)}: {_these_are(running, State.RUNNING)}"
    goes_on = newest.counts.running or any(task.state in _MAY_GO_ON for task in tasks)
    if goes_on:
        is_idle = newest.state is RunState.PROCESSING and not newest.counts.running
        by_state = {state: [task.name for task in tasks if task.state is state] for state in _MAY_GO_ON}
        state = next((state for state in _MAY_GO_ON if is_idle and by_state[state]), None)
        return run_sentence(newest) + (f": {_these_are(by_state[state], state)}" if state else "")
    held = [task.name for task in tasks if task.state is State.HELD and not task.awaits]
    if held or (newest.counts.held and all(task.state is not State.HELD for task in tasks)):
        more = f" and {len(held) - MOST_HELD} more" if len(held) > MOST_HELD else ""
        return "waits for a release" + (f" of {', '.join(held[:MOST_HELD])}{more}" if held else "")
    branch, _, _ = newest.full_name.rpartition("@")
    elsewhere = (task.awaits for task in tasks if task.awaits.startswith(f"{branch}@"))
    outside = next((awaits for awaits in elsewhere if not awaits.startswith(f"{newest.full_name}/")), "")
    is_stuck = outside and newest.state is not RunState.PENDING
    return f"waits for {outside.removeprefix(f'{branch}@')}" if is_stuck else run_sentence(newest)


def _these_are(names: Sequence[str], state: State) -> str:
    """The tasks in a state in words: the first ones by name, and the number of the others."""
    more = f" and {len(names) - MOST_RUNNING} more" if len(names) > MOST_RUNNING else ""
    return f"{', '.join(names[:MOST_RUNNING])}{more} {'is' if len(names) == 1 else 'are'} {state}"


def _newest_completed(runs: Sequence[ListedRun]) -> ListedRun | None:
    """The newest completed commit run, other than a baseline, which ran nothing."""
    completed = (run for run in runs if run.state is RunState.COMPLETED and run.run == COMMIT_RUN)
    return next((run for run in completed if not run.baseline), None)


def _rare(visitor: Visitor, view: views.ArchiveView, failures: int) -> list[tuple[str, str]]:
    """The rarely used verbs that are possible on an archive now, with the words of their buttons."""
    (polls,) = visitor.caller.session.rows("polls_there", archive=view.id, run=None)
    is_watched = view.removed_at is None
    can = {
        ("retry", "Retry all that failed"): failures and is_watched,
        ("refresh", "Poll all that is deferred"): polls.is_there and is_watched,
        ("sync", "Read it now"): is_watched and not view.why_unread,  # else it is the filled button
        ("purge", "Purge what is kept no longer"): visitor.may_administer
        and (view.settings.keep or view.settings.keep_logs),
    }
    return [one for one, is_possible in can.items() if is_possible]


def removal_shown(visitor: Visitor, view: views.ArchiveView) -> dict[str, object]:
    """The removal of an archive, and the visitor, who has no buttons if it was removed."""
    removal = views.removal_of(visitor.caller.session, view.id)
    return {"_removal": removal, "_actor": visitor.looking if removal else visitor}


def _first_workflow(visitor: Visitor, view: views.ArchiveView) -> dict[str, object]:
    """What the example of a first workflow says. ``_image``: the image that its task has to name,
    because the archive permits no processes and no image is usual; empty: it needs none.
    ``_only_containers``: True to say so, which a visitor who has not signed in does not see.
    """
    settings = view.settings
    needs_image = not (settings.process or settings.image or visitor.caller.configuration.docker.image)
    image = (settings.images[0] if settings.images else EXAMPLE_IMAGE) if needs_image else ""
    return {"_image": image, "_only_containers": needs_image and not visitor.is_anybody}


def _coming(visitor: Visitor, name: str, branch: BranchId | None) -> dict[str, object]:
    """The run that the next commit of a branch without runs will make."""
    found = None
    if branch is not None and (head := visitor.caller.session.rows("head_revision", branch=branch)):
        found = coming(visitor.caller.session, head[0].id)
    is_drawn = found is not None and 0 < len(found.graph.nodes) <= MOST_DRAWN
    picture = drawn(found.graph, name, words=_words(found)) if found and is_drawn else None
    is_empty = found is not None and not found.graph.nodes and not found.faults
    return {"coming": found, "_coming": picture, "is_empty": is_empty}


def _withheld(view: views.ArchiveView) -> Withheld:
    """The stop, hold and pause of an archive."""
    return withheld(view.name, view.stopped, is_on_hold=view.hold is not None, is_paused=view.paused is not None)


def _words(coming: Coming) -> dict[int, str]:
    """For each task, its place in its file; for a list, also the number of its items."""
    words = coming.places
    for id, count in coming.items.items():
        items = "items removed" if count is None else f"{count:,} item{'s' if count != 1 else ''}"
        words = words | {id: f"{items} · {words[id]}"}
    return words


def _nothing_yet(visitor: Visitor, view: views.ArchiveView) -> dict[str, object]:
    nothing: dict[str, object] = {
        "archive": view,
        **removal_shown(visitor, view),
        "_refused": _withheld(view).refused_in_grid(OfGrid(), []),
        "_why_guarded": "",
        "address": view.name,
        "branch": "",
        "branches": [],
        "rows": [],
        "_lines": [],
        "_parts": parts_of,
        "_heads": heads_of,
        "_menu": menu_of,
        "columns": [],
        "groups": [],
        "gone": [],
        "names": [],
        "chosen": [],
        "next": None,
        "takes_submissions": False,
        "may_trigger": False,
        "is_later_page": False,
        "_not_a_state": "",
        "_further": {},
        "backfills": [],
        "_alarming": set(),
        "_failing": {},
        "_older": [],
        "rare": [],
        "coming": None,
        "_coming": None,
        "is_empty": True,
        "_image": "",
        "_only_containers": False,
    }
    nothing |= {"filter": Filter("", "", "", ""), "filter_address": "", "states": []}
    return nothing | {
        "newest": None,
        "_newest_words": "",
        "_newest_ends": None,
        "complete": None,
        "failures": [],
        "failed": 0,
        "elsewhere": [],
        "faulty": None,
    }


def _runs(
    visitor: Visitor,
    archive: ArchiveId,
    branch: BranchId,
    wanted: Filter,
    before: int | None,
    faulty: int | None,
    most: int,
) -> RunPage:
    """A page of the runs that a filter leaves. ``faulty``: the run at the head whose workflow files
    have faults. ``most``: the most runs.
    """
    session = visitor.caller.session
    # The index of words has messages and authors together.
    words, task = query_of(f"{wanted.message} {wanted.author}"), wanted.task or None
    message, author = query_of(wanted.message), query_of(wanted.author)
    if (wanted.message and message is None) or (wanted.author and author is None):
        return RunPage(runs=[], next=None)  # nothing has a word that is only punctuation
    if wanted.state == UNHANDLED:
        return unhandled_runs(
            session, archive, branch, words=words, message=message, author=author, task=task, faulty=None if task else faulty, before=before, limit=most
        )  # fmt: skip
    states = [RunState(wanted.state)] if wanted.state and not wanted.task else []
    if not (words or task):
        return runs(
            session, archives=[archive], branch=branch, states=states, before=before, limit=most, backfills=False
        )  # fmt: skip
    return matching_runs(
        session, branch, words=words, message=message, author=author, task=task, states=states, before=before, limit=most,
        task_state=State(wanted.state) if wanted.state and wanted.task else None,
    )  # fmt: skip
