"""Random workflows and events of an archive, for the model test.

The workflows are valid for ``arkqueue.workflow``: no cycles inside a run, no edge named twice, and
no two tasks that cancel each other. They use few names and few paths, so that runs often meet.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from hypothesis import strategies as st

from arkqueue.model import (
    COMMIT,
    REPORT,
    Cancels,
    Depends,
    End,
    Fault,
    Foreach,
    Item,
    Poll,
    Retries,
    TaskDefinition,
    Trigger,
    When,
    Workflow,
)
from arkqueue.priorities import PRIORITY
from arkqueue.workflow import digest_of

NAMES = ("a", "b", "c", "d", "e")
PATHS = ("docs/a", "docs/b", "src/c")
BRANCHES = ("main", "side")
UNKNOWN = "nobody"
"""A name that no file defines. Only an optional ``depends`` may use it."""

changed_paths = st.frozensets(st.sampled_from(PATHS))
_when = st.sampled_from([When.COMPLETED, When.COMPLETED, When.SETTLED])
_SOME_LEFT_OUT = (("a",), ("b",), ("a", "c"), NAMES)
"""The exceptions of a ``PREV:*`` in the random workflows. All of the names together leave only
COMMIT.
"""
_excepted = st.sampled_from([(), (), *_SOME_LEFT_OUT])
_any_when = st.sampled_from([When.COMPLETED] * 4 + [When.SETTLED] * 2 + [When.FAILED])
_once_in_six = st.sampled_from([False] * 5 + [True])


# Making a strategy takes longer than drawing from it, so each of these is made once.


def _words(previous: Sequence[str | None], inside: Sequence[str]) -> st.SearchStrategy[tuple[str | None, bool]]:
    """Pairs of a name and whether it has PREV. Two of three are inside the run, if there is
    anything inside.
    """
    earlier = st.sampled_from([(name, True) for name in previous])
    within = st.sampled_from([(name, False) for name in inside or [UNKNOWN]])
    return st.one_of(earlier, within, within) if inside else earlier


@st.composite
def entries(draw: st.DrawFn, task: str | None, previous: bool, of_commit: bool = False) -> Depends:
    """An entry of ``depends``. A ``PREV:*`` sometimes excepts tasks. Entries with ``PREV:*`` or
    COMMIT do not wait for failures.
    """
    excepted = draw(_excepted) if task == "*" else ()
    when = draw(_when if task == "*" or of_commit else _any_when)
    return Depends(task, previous, when, optional=task == UNKNOWN, excepted=excepted)


@cache
def _sources(before: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str | None, bool]]]:
    words = _words([None, None, *NAMES, "*"], [*before * 4, UNKNOWN] if before else [])
    return st.lists(words, max_size=3, unique=True)


@cache
def _victims(name: str, after: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str | None, bool]]]:
    words = _words([None, None, None, *(other for other in NAMES if other != name)], after)
    return st.sampled_from([[], [(None, True)]]) | st.lists(words, max_size=2, unique=True)


@cache
def _locks(fields: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    with_fields = [(field, *more) for field in fields for more in ((), (), ("tex",))]
    return st.sampled_from([()] * 6 + [("tex",), ("tex",), ("printer",), ("printer", "tex"), *with_fields])


_retries = st.sampled_from([Retries(max=most) for most in (0, 0, 0, 1, 2)])
_triggers = st.sampled_from(
    [(Trigger.COMMIT, Trigger.MANUAL)] * 6
    + [(Trigger.COMMIT, Trigger.MANUAL, Trigger.SUBMISSION)] * 5
    + [(Trigger.MANUAL,), (Trigger.COMMIT,), (Trigger.SUBMISSION,)]
)
_paths = st.sampled_from([()] * 8 + [("docs/*",), ("docs/b", "src/*")])
_branches = st.sampled_from([()] * 12 + [("main",), ("s*",)])
_priorities = st.sampled_from([50] * 6 + [10, 90])
_once_in_twelve = st.sampled_from([False] * 11 + [True])
_scratch = st.sampled_from([None] * 3 + ["run"])
_runs_on = st.sampled_from([()] * 6 + [("gpu",), ("gpu", "tex")])
_polls = st.sampled_from([None, Poll("true")])
_deadlines = st.sampled_from([None, 3600.0])
_on_lost = st.sampled_from(["rerun", "rerun", "fail"])


@st.composite
def definitions(draw: st.DrawFn, name: str, before: tuple[str, ...], after: tuple[str, ...]) -> TaskDefinition:
    """A task that may depend on the tasks ``before`` it in topological order, and cancel the tasks
    ``after`` it in alphabetical order.
    """
    depends, cancels = draw(_sources(before)), draw(_victims(name, after))
    gate = draw(_once_in_six)
    # The examples have one output that a field may name.
    fields = tuple(f"p-${{{{ needs.{task or name}.{PRIORITY} }}}}" for task, _ in depends if task != "*")
    return TaskDefinition(
        name,
        path="_workflows/random.yaml",
        depends=tuple(draw(entries(task, previous)) for task, previous in depends),
        cancels=tuple(Cancels(task, previous, draw(_once_in_six)) for task, previous in cancels),
        command=None if gate else "true",
        retries=Retries(max=0) if gate else draw(_retries),
        on=draw(_triggers),
        paths=draw(_paths),
        branches=draw(_branches),
        exclusive=draw(_once_in_six),
        hold=draw(_once_in_twelve),
        priority=50 if gate else draw(_priorities),
        lock=() if gate else draw(_locks(fields)),
        runs_on=draw(_runs_on),
        scratch=None if gate else draw(_scratch),
        on_lost=draw(_on_lost),
        deadline=None if gate else draw(_deadlines),
        poll=None if gate else draw(_polls),
    )


_words_of_commit = st.lists(st.sampled_from(["*", "*", *NAMES]), min_size=1, max_size=2, unique=True)
_once_in_twenty = st.sampled_from([False] * 19 + [True])
_orders = st.permutations(NAMES)
_sizes = st.sampled_from([2, 3, 4, 4, 5])


@st.composite
def commit_extensions(draw: st.DrawFn) -> TaskDefinition:
    """A workflow's extension of COMMIT (design 5.3, 5.13)."""
    depends = tuple(draw(entries(task, True, of_commit=True)) for task in draw(_words_of_commit))
    return TaskDefinition(COMMIT, path="_workflows/random.yaml", depends=depends)


_reports = st.builds(
    TaskDefinition,
    st.just(REPORT),
    path=st.just("_workflows/random.yaml"),
    command=st.just("true"),
    retries=_retries,
    hold=_once_in_twelve,
    runs_on=_runs_on,
    scratch=_scratch,
    on_lost=_on_lost,
)
_HELD_REPORT = TaskDefinition(REPORT, path="_workflows/random.yaml", hold=True)
_twice_in_three = st.sampled_from([True, True, False])


@st.composite
def workflows(draw: st.DrawFn) -> Workflow:
    if draw(_once_in_twenty):
        return Workflow(faults=(Fault("_workflows/random.yaml", 1, 1, "unknown field"),))
    names = tuple(draw(_orders))[: draw(_sizes)]
    tasks = {
        name: draw(definitions(name, names[:place], tuple(sorted(other for other in names if other > name))))
        for place, name in enumerate(names)
    }
    if draw(_once_in_six):
        tasks[COMMIT] = draw(commit_extensions())
    if draw(st.booleans()):
        tasks[REPORT] = _HELD_REPORT if draw(_once_in_twelve) else draw(_reports)
    # The file order differs from the topological order.
    workflow = Workflow(tuple(draw(st.permutations(list(tasks.values())))))
    return draw(with_lists(workflow)) if draw(_twice_in_three) else workflow


_LISTS = {keys: tuple(Item(key, json.dumps(key)) for key in keys) for keys in ("", "k", "kl", "lm")}
"""The lists that a task may have, by their keys."""
_lists = st.sampled_from(["kl", "kl", "kl", "k", "lm", ""])
_SUBMITTED = "submission"
"""A marker in place of a list's keys: the list has the items of a submission."""
LIST_FILE = "lists/items.txt"
_OF_FILE = "file"
"""A marker in place of a list's keys: the list has the items of `LIST_FILE`."""
list_files = st.sampled_from([None, None, "", "k", "kl", "kl", "lm"])
"""The keys that a commit writes into `LIST_FILE`; None leaves the file unchanged."""
submitted = st.sampled_from([_LISTS[keys] for keys in ("kl", "kl", "k", "")])


@st.composite
def with_lists(draw: st.DrawFn, workflow: Workflow) -> Workflow:
    """The same definitions, most of them with one of two lists. Across revisions, lists grow,
    shrink, appear and disappear.
    """
    first = _OF_FILE if draw(st.booleans()) else draw(_lists)
    some = st.sampled_from([None, *[first] * 3, draw(_lists), _SUBMITTED])
    of_task = {t.name: None if t.name in (COMMIT, REPORT) else draw(some) for t in workflow.tasks}
    tasks = tuple(_with_list(task, of_task, draw(_scratch_of_item)) for task in workflow.tasks)
    used = {keys for keys in of_task.values() if keys in _LISTS}
    named = (LIST_FILE,) if _OF_FILE in of_task.values() else ()
    lists = {digest_of(_LISTS[keys]): _LISTS[keys] for keys in used if keys is not None}
    return Workflow(tasks, workflow.faults, lists, named)


def over_list_file(workflow: Workflow, items: tuple[Item, ...]) -> Workflow:
    """The same definitions at a revision whose `LIST_FILE` has these items."""
    if not workflow.list_files:
        return workflow
    foreach = Foreach(digest_of(items), None, LIST_FILE)
    tasks = tuple(replace(task, foreach=foreach) if is_of_file(task) else task for task in workflow.tasks)
    return replace(workflow, tasks=tasks, lists={**workflow.lists, foreach.items: items})


def is_of_file(task: TaskDefinition) -> bool:
    return task.foreach is not None and task.foreach.file is not None


def _with_list(task: TaskDefinition, of_task: dict[str, str | None], scratch: str) -> TaskDefinition:
    """Gives a task a list. Only a task over the same list can wait for the failure of an item."""
    keys = of_task[task.name]
    depends = tuple(
        replace(wish, when=When.SETTLED)
        if wish.when is When.FAILED and of_task.get(wish.task or task.name) not in (None, keys)
        else wish
        for wish in task.depends
    )
    is_submitted = keys == _SUBMITTED
    foreach = None
    if keys is not None:
        foreach = Foreach.of_submission(None) if is_submitted else Foreach("", None, LIST_FILE)
        foreach = Foreach(digest_of(_LISTS[keys])) if keys in _LISTS else foreach
    was_submitted = task.foreach is not None and task.foreach.is_of_submission
    on = (Trigger.SUBMISSION,) if is_submitted else (Trigger.COMMIT, Trigger.MANUAL) if was_submitted else task.on
    scratch = scratch if keys else "run"
    return replace(task, depends=depends, foreach=foreach, on=on, scratch=task.scratch and scratch)


_scratch_of_item = st.sampled_from(["run", "item", "item"])


def mostly(workflow: Workflow) -> st.SearchStrategy[Workflow]:
    """The given definitions, the same with other lists, or new definitions."""
    same = [st.just(workflow)] * 4
    has_lists = workflow.lists or workflow.list_files
    return st.one_of(same + [with_lists(workflow)] * (2 if has_lists else 0) + [workflows()])


LABELS = ("gpu", "tex", "@here")
EVERY_HOST = (LABELS, ("gpu", "tex", "@there"))
labels = st.sampled_from([LABELS] * 3 + [EVERY_HOST[1], EVERY_HOST[1], ("@here",), ("gpu", "@here"), ("tex", "@there")])
"""The labels of the task manager that claims next, including one for its host, which has the
scratch folders made there.
"""


def of_host(labels: Collection[str]) -> tuple[list[str], str]:
    """The labels of a task manager without its host's label, and its host."""
    (host,) = (label for label in labels if label.startswith("@"))
    return [label for label in labels if label != host], host[1:]


stores = st.sampled_from([None, None, "@here", "@there"])
"""The place of a submission's attachments; None: it has no attachments."""
LOCKS = ("tex", "printer")
locks = st.sampled_from(LOCKS)
capacities = st.sampled_from([1, 2, 2, None])
guarded = st.sampled_from([frozenset[str](), *(frozenset(names) for names in ("a", "b", "ab", "cd", ("a", REPORT)))])
"""The names that an archive guards."""
priorities = st.sampled_from([10, 90])
outputs = st.sampled_from([None] * 3 + [10, 90])
"""The output `arkqueue.priority` of an attempt."""
ends = st.sampled_from(
    [(End.EXITED, 0)] * 9
    + [(End.EXITED, 1)] * 3
    + [
        (End.EXITED, 65),
        (End.EXITED, 75),
        (End.EXITED, 75),
        (End.TIMED_OUT, 143),
        (End.NOT_STARTED, None),
        (End.UNREACHABLE, None),
        (End.LOST, None),
    ]
)
"""The ends (kind of end, exit code) of an attempt that nobody asked to stop."""
ends_again = st.one_of(ends, st.just((End.EXITED, 75)))
"""The ends of an attempt whose task was deferred before."""
