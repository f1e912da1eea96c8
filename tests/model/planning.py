"""Planning: revisions, runs by hand, submissions and backfills become tasks and edges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import pairwise

from arkqueue.model import (
    COMMIT,
    REPORT,
    Depends,
    Fault,
    Foreach,
    Item,
    TaskDefinition,
    Trigger,
    When,
    Workflow,
)
from arkqueue.states import Event, State, move
from tests.model.edges import connects_items, is_of_key, lost, spares
from tests.model.looking import NO_FILES, Changes, Looking
from tests.model.words import (
    Appended,
    Attempt,
    Backfill,
    Blocks,
    Edge,
    Key,
    Kind,
    Name,
    Place,
    Reason,
    Refused,
    Revision,
    Run,
    Task,
    gate_of,
)


class Planning(Looking):
    """Plans runs."""

    def baseline(self, branch: str, number: int, files: Mapping[str, tuple[Item, ...]] = NO_FILES) -> Changes:
        """Adds the revision at which watching began: a completed COMMIT and no other task (design
        2).
        """
        before = self.states()
        run = Run(branch, Place(number, 1), Trigger.COMMIT, Workflow())
        run.tasks[Name(COMMIT)] = Task(run, TaskDefinition(COMMIT), 0, State.COMPLETED)
        self.runs.append(run)
        self.revisions[branch, number] = Revision(run.workflow, files=files)
        return self._follow(before)

    def commit(self, branch: str, number: int, workflow: Workflow, changed: Iterable[str] = ()) -> Changes:
        """Plans the commit run of a new revision."""
        return self.append(branch, [Appended(number, workflow, frozenset(changed))])

    def append(
        self, branch: str, revisions: Sequence[Appended], dropped: Collection[int] = (), hold: bool = False
    ) -> Changes:
        """Plans the commit runs of new revisions in one step, after a rewrite that took the
        ``dropped`` numbers off the branch.

        ``hold``: the revisions belong to an import on hold (design 5.22).
        """
        if branch in self.deleted_branches:
            raise Refused(Reason.GONE)
        if any(number >= new.number for of, number in self.revisions if of == branch for new in revisions):
            raise Refused(Reason.UNKNOWN)
        before = self.states()
        if dropped:
            self.rewrite(branch, dropped)
        runs = [self._append(branch, new, hold) for new in revisions]
        return self._follow(before, runs)

    def _append(self, branch: str, new: Appended, hold: bool) -> Run:
        run = Run(branch, Place(new.number, 1), Trigger.COMMIT, new.workflow)
        faulty = bool(new.workflow.faults)
        chosen = [task for task in new.workflow.tasks if not faulty and _exists(task, run, new.changed)]
        head = max(number for of, number in self.revisions if of == branch)
        self.revisions[branch, new.number] = Revision(new.workflow, files=new.files)
        self._plan(run, chosen, hold)
        for other in self.on_branch(branch):
            if other.trigger is Trigger.SUBMISSION:
                continue
            if other.place < run.place and (other.place.number == head or other.trigger is not Trigger.COMMIT):
                for task in other.own:
                    if task.definition.exclusive and not task.settled and not self._holds_a_gate(task):
                        self._edge(task, run.tasks[Name(COMMIT)], When.SETTLED, Kind.EXCLUSIVE)
        self._pass_at_once(run)
        return run

    def _pass_at_once(self, run: Run) -> None:
        """Passes COMMIT at the beginning of the step if all its edges are met."""
        commit = run.tasks[Name(COMMIT)]
        if all(self._is_satisfied(edge) for edge in commit.into):
            for edge in commit.into:
                edge.met = True
            commit.state = move(commit.state, Event.PASS)

    def trigger(
        self,
        branch: str,
        number: int,
        names: Iterable[str] | None = None,
        force: bool = False,
        trigger: Trigger = Trigger.MANUAL,
        items: Sequence[Item] = (),
        store: str | None = None,
    ) -> Changes:
        """Plans a further run of a revision, after the runs that the revision has (design 5.11,
        5.18).
        """
        revision = self.revisions.get((branch, number))
        if revision is None:
            raise Refused(Reason.UNKNOWN)
        if branch in self.deleted_branches or revision.dropped:
            raise Refused(Reason.GONE)
        before = self.states()
        lists = {**revision.workflow.lists, Foreach.of_submission(None).items: tuple(items)}
        workflow = replace(revision.workflow, lists=lists) if trigger is Trigger.SUBMISSION else revision.workflow
        if store is not None:
            tasks = (one if one.is_gate else replace(one, runs_on=(store, *one.runs_on)) for one in workflow.tasks)
            workflow = replace(workflow, tasks=tuple(tasks))
        run = Run(branch, Place(number, revision.last_run + 1), trigger, workflow)
        self._add(run, self._asked(run, names, force))
        return self._follow(before, [run])

    def submit(self, branch: str, number: int, items: Sequence[Item] = (), store: str | None = None) -> Changes:
        """Plans the run of a submission with these items (design 5.31). ``store``: the label of the
        task managers that have its attachments; None for a submission without attachments.
        """
        return self.trigger(branch, number, trigger=Trigger.SUBMISSION, items=items, store=store)

    def backfill(self, branch: str, first: int, last: int, names: Collection[str], force: bool = False) -> Changes:
        """Plans runs of tasks at old revisions, in order, with the head's definitions (issue 34).
        The backfill is refused if the run of the first revision would be refused.

        A list in a file has the items that the file has at each revision (decision 0001, point 29).
        """
        on_branch = {at: r for (on, at), r in self.revisions.items() if on == branch and not r.dropped}
        fill = Backfill()
        before, changes = self.states(), Changes()
        for number in sorted(at for at in on_branch if first <= at <= last):
            place = Place(number, on_branch[number].last_run + 1)
            workflow = _over_files(on_branch[max(on_branch)].workflow, on_branch[number].files)
            run = Run(branch, place, Trigger.MANUAL, workflow, fill=fill)
            chosen = self._asked(run, names, force) if number == first else self._chosen(run, names)
            # only the first run can refuse the backfill
            if number != first and self._never_ran(run, self._outside(run, chosen)):
                run = Run(branch, place, Trigger.MANUAL, Workflow(faults=(Fault("", 0, 0, "cannot start"),)), fill=fill)
                chosen = []
            self._add(run, chosen)
            changes = self._follow(before, [run])
        return changes

    def _chosen(self, run: Run, names: Iterable[str]) -> list[TaskDefinition]:
        return [task for task in run.workflow.tasks if _exists(task, run, None) and task.name in names]

    def _asked(self, run: Run, names: Iterable[str] | None, force: bool) -> list[TaskDefinition]:
        """The chosen tasks of a further run. Raises ``Refused`` if the run is not possible."""
        workflow, trigger = run.workflow, run.trigger
        if workflow.faults:
            raise Refused(Reason.FAULTY)
        left = {digest for other in self.runs for digest in other.workflow.lists}
        of_run = {task.foreach.items for task in workflow.tasks if task.foreach and task.foreach.is_of_run}
        if not workflow.lists.keys() - of_run - {Foreach.of_submission(None).items} <= left:
            raise Refused(Reason.GONE)  # a list is removed with the last run that has it
        # Without names, tasks that run only by hand, such as a release, are not meant.
        meant = (
            {t.name for t in workflow.tasks if trigger is not Trigger.MANUAL or Trigger.COMMIT in t.on}
            if names is None
            else set(names)
        )
        chosen = self._chosen(run, meant)
        if names is not None and set(names) != {task.name for task in chosen}:
            raise Refused(Reason.UNKNOWN)
        planned = [(task, item) for task in chosen for item in _items(workflow, task)]
        may_be_empty = any(trigger is Trigger.SUBMISSION or (d.foreach and d.foreach.is_of_run) for d in chosen)
        if not (planned or may_be_empty):
            raise Refused(Reason.NOTHING)
        if (
            trigger is Trigger.MANUAL
            and not self.approves
            and self.guards & _left_out(workflow.tasks, _having(chosen, planned))
        ):
            raise Refused(Reason.GUARDED)
        outside = self._outside(run, chosen)
        missing = self._never_ran(run, outside) | {
            name
            for wish, name, source, _ in outside
            if source is not None and wish.when is When.COMPLETED and source.bad and lost(source)
        }
        if missing:
            raise Refused(Reason.MISSING, *(Key(*run.key, name) for name in sorted(missing)))
        by = [
            canceler
            for task, item in planned
            for canceler in self._superseders(run, Name(task.name, item), started=False)
        ]
        if by and not force:
            raise Refused(Reason.SUPERSEDED, *(canceler.key for canceler in by))
        programs = [Name(task.name, item) for task, item in planned if not task.is_gate]
        if (later := [key for name in programs for key in self._completed_after(run, name)]) and not force:
            raise Refused(Reason.OVERWRITES, *later)
        unneeded = {
            name
            for wish, name, source, _ in outside
            if names is not None
            and wish.when is When.FAILED
            and source is not None
            and not source.is_gate_of_list
            and spares(source)
        }
        if unneeded:
            raise Refused(Reason.UNNEEDED, *(Key(*run.key, name) for name in sorted(unneeded)))
        return chosen

    def _outside(self, run: Run, chosen: list[TaskDefinition]) -> list[tuple[Depends, str, Task | None, Name]]:
        """The dependencies outside a run that is not a commit run. Each has its entry, its task
        name, the nearest occurrence, and the occurrence's name.
        """
        workflow = run.workflow
        others = _names(workflow.tasks) - _names(chosen) - {COMMIT}
        return [
            (
                wish,
                wish.task,
                self.nearest_named(wish.task, run, task, item, wish.when),
                Name(wish.task, item if connects_items(workflow, task, item, wish.task) else ""),
            )
            for task in chosen
            for item in _items(workflow, task)
            for wish in task.depends
            if not wish.previous and wish.task and wish.task in others
        ]

    def _never_ran(self, run: Run, outside: Iterable[tuple[Depends, str, Task | None, Name]]) -> set[str]:
        return {
            name
            for wish, name, source, key in outside
            if source is None and not wish.optional and not self.is_purged(key, run)
        }

    def _add(self, run: Run, chosen: list[TaskDefinition]) -> None:
        """Plans a run that is not a commit run. The run may close the gate to the next revision
        (design 5.14).
        """
        self.revisions[run.branch, run.place.number].last_run += 1
        self._plan(run, chosen)
        gates = [
            r.tasks[Name(COMMIT)]
            for r in self.commit_runs(run.branch)
            if r.place > run.place and not r.tasks[Name(COMMIT)].settled
        ]
        if gates and run.trigger is not Trigger.SUBMISSION:
            for task in run.own:
                if task.definition.exclusive:
                    self._edge(task, gates[0], When.SETTLED, Kind.EXCLUSIVE)
        self._pass_at_once(run)

    def _plan(self, run: Run, chosen: list[TaskDefinition], hold: bool = False) -> None:
        """Makes COMMIT, the chosen tasks and REPORT, with their edges."""
        self.runs.append(run)
        run.chosen = {COMMIT, *_names(chosen)}
        extended = next((task for task in run.workflow.tasks if task.name == COMMIT), TaskDefinition(COMMIT))
        report = next((task for task in run.workflow.tasks if task.name == REPORT), TaskDefinition(REPORT))
        is_submission = run.trigger is Trigger.SUBMISSION
        definitions = [TaskDefinition(COMMIT) if run.workflow.faults or is_submission else extended, *chosen, report]
        nodes = [(definition, item) for definition in definitions for item in _items(run.workflow, definition)]
        for order, (definition, item) in enumerate(nodes):
            run.tasks[Name(definition.name, item)] = Task(run, definition, order, item=item)
        for name in {definition.name: None for definition, item in nodes if item}:
            for when in (When.COMPLETED, When.SETTLED):
                gate = run.tasks[gate_of(name, when)] = Task(run, TaskDefinition(gate_of(name, when).name), 0)
                for task in run.named(name):
                    self._edge(task, gate, when, Kind.IMPLICIT)
        commit, report = run.tasks[Name(COMMIT)], run.tasks[Name(REPORT)]
        if is_submission:
            run.behind = self.nearest(Name(COMMIT), run)
        elif previous := self.nearest(Name(COMMIT), run):
            self._edge(previous, commit, When.COMPLETED)
        for task in list(run.tasks.values()):
            for wish in task.definition.depends:
                source = self._source(run, task, wish)
                if source and not (source.is_gate_of_list and wish.when is When.FAILED):
                    when = When.COMPLETED if source.is_star else wish.when
                    product = not wish.previous and source.run is not run and when is When.COMPLETED
                    self._depend(source, task, when, product)
                elif wish.when is When.FAILED and (source or not wish.previous or self._has_purged(run, task, wish)):
                    # A task that never ran, or that completed, has not failed. Neither has the gate
                    # of a list. So the dependent is skipped when COMMIT completes.
                    self._edge(commit, task, When.FAILED, Kind.IMPLICIT)
        if run.fill:
            self._put_in_order(run, run.fill)
        for task in run.own:
            self._edge(commit, task, When.COMPLETED, Kind.IMPLICIT)
        for task in (commit, *run.own):
            self._edge(task, report, When.SETTLED, Kind.IMPLICIT)
        exclusive = [task for name in _in_order(chosen) for task in run.named(name) if task.definition.exclusive]
        for first, second in pairwise(exclusive):
            self._edge(first, second, When.SETTLED, Kind.EXCLUSIVE)
        for task in run.own:
            if task.definition.hold or task.name in self.guards or ((hold or self.on_hold) and not task.is_gate):
                self._hold(task, by_a_guard=task.name in self.guards)
        reports = run.tasks[Name(REPORT)]
        is_held = reports.definition.hold
        if is_held or (REPORT in self.guards and not run.workflow.faults):
            self._hold(reports, by_a_guard=REPORT in self.guards)

    def _put_in_order(self, run: Run, fill: Backfill) -> None:
        """Makes each task of a backfill wait for its predecessor, and gives new
        commits precedence.
        """
        for task in run.own:
            previous = fill.last.get(task.key.inside)
            if previous and all(edge.source is not previous or edge.when is When.COMPLETED for edge in task.into):
                self._edge(previous, task, When.SETTLED, Kind.IMPLICIT)
            fill.last[task.key.inside] = task
        for task in (*run.own, *self._report_with_command(run)):
            task.priority = min(task.priority + 40, 1000)

    def _has_purged(self, run: Run, task: Task, wish: Depends) -> bool:
        """Whether the source of a ``depends`` entry was purged."""
        name = wish.task or task.name
        keys = {Name(name)} | (
            {Name(name, task.item)} if connects_items(run.workflow, task.definition, task.item, name) else set()
        )
        return any(self.is_purged(key, run) for key in keys)

    def _source(self, run: Run, task: Task, wish: Depends) -> Task | None:
        """The source of a ``depends`` entry in this run (design 5.6, 5.7, 5.18). None: there is
        nothing to wait for.
        """
        if wish.task == "*":
            return self._star(run, task, wish)
        name = wish.task or task.name
        if not wish.previous and name in run.chosen:
            of_list = run.list_of(name) is not None
            by_item = connects_items(run.workflow, task.definition, task.item, name)
            key = gate_of(name, wish.when) if of_list and not by_item else Name(name, task.item if by_item else "")
            return run.tasks.get(key)  # the gate of an empty list passes
        if wish.previous or name in _names(run.workflow.tasks):
            return self.nearest_named(name, run, task.definition, task.item, wish.when)
        return None

    def _depend(self, source: Task, target: Task, when: When, product: bool) -> None:
        """Adds an edge. If an edge from the same source exists, they merge: an edge that stands for
        a product is the stricter one.
        """
        for edge in target.into:
            if edge.source is source and edge.when is when and edge.kind is Kind.DECLARED:
                edge.product = edge.product or product
                return
        self._edge(source, target, when, product=product)

    def _star(self, run: Run, task: Task, wish: Depends) -> Task:
        """The run's gate for a ``PREV:*``, made at its first use and shared by all tasks that wait
        for the same set. COMMIT waits only for commit runs.
        """
        of_commits = task.name == COMMIT
        name = Name(f"PREV:*{':commits' if of_commits else ''}{':settled' if wish.when is When.SETTLED else ''}")
        if wish.excepted:
            name = Name(f"{name.name}:except:{','.join(sorted(wish.excepted))}")
        if name not in run.tasks:
            gate = run.tasks[name] = Task(run, TaskDefinition(name.name), 0)
            earlier = {
                task.key.inside for r in self.on_branch(run.branch) if r.place < run.place for task in r.tasks.values()
            }
            names = {other.name for other in earlier if ":" not in other.name} - {REPORT, *wish.excepted}
            for other in sorted(names):
                keys = Name(other), gate_of(other, wish.when)
                if found := [one for key in keys if (one := self.nearest(key, run, of_commits))]:
                    self._edge(max(found, key=lambda one: one.run.place), gate, wish.when)
            for key in sorted(key for key in earlier if key.item and key.name in names):
                source = self.nearest(key, run, of_commits)
                if source and not (source.settled and self.blocks(source) < Blocks.ALL):
                    self._edge(source, gate, wish.when)
        return run.tasks[name]

    def _edge(
        self,
        source: Task,
        target: Task,
        when: When,
        kind: Kind = Kind.DECLARED,
        attempt: Attempt | None = None,
        product: bool = False,
    ) -> None:
        edge = Edge(source, target, kind, when, attempt=attempt, product=product)
        for edges in (self.edges, target.into, source.out_of):
            edges.append(edge)

    def _holds_a_gate(self, task: Task) -> bool:
        return any(edge.kind is Kind.EXCLUSIVE and edge.crossing for edge in task.out_of)

    def _superseders(self, run: Run, name: Name, started: bool) -> list[Task]:
        """The tasks of later runs that have fired a ``cancels`` aimed at this task
        (design 5.11).
        """
        return [
            task
            for later in self.on_branch(run.branch)
            if later.place > run.place and (run.trigger is not Trigger.SUBMISSION or later.trigger is run.trigger)
            for task in later.tasks.values()
            if task.fired and is_of_key(task.item, name.item, run.trigger is Trigger.SUBMISSION)
            for entry in task.definition.cancels
            if entry.previous and (entry.task or task.name) == name.name and not (entry.only_unstarted and started)
        ]


def _exists(task: TaskDefinition, run: Run, changed: frozenset[str] | None) -> bool:
    """Whether the filters let the task into the run (design 3). ``changed``: the changed paths;
    None ignores path filters.
    """
    on_branch = not task.branches or any(fnmatchcase(run.branch, glob) for glob in task.branches)
    touched = (
        not task.paths or changed is None or any(fnmatchcase(path, glob) for path in changed for glob in task.paths)
    )
    return task.name not in (COMMIT, REPORT) and run.trigger in task.on and on_branch and touched


def _items(workflow: Workflow, task: TaskDefinition) -> list[str]:
    """The keys of a task's list; a single empty key for a task without a list."""
    items = workflow.items_of(task)
    return [""] if items is None else [item.key for item in items]


def _over_files(workflow: Workflow, files: Mapping[str, tuple[Item, ...]]) -> Workflow:
    """The definitions of one revision with the list files of another revision."""
    lists = {**workflow.lists}
    tasks = list(workflow.tasks)
    for place, task in enumerate(tasks):
        if task.foreach and task.foreach.file:
            foreach = task.foreach.at_each_revision()
            tasks[place] = replace(task, foreach=foreach)
            lists[foreach.items] = files[task.foreach.file]
    return replace(workflow, tasks=tuple(tasks), lists=lists)


def _in_order(chosen: Iterable[TaskDefinition]) -> list[str]:
    """The names of tasks in topological order, ties in file order."""
    left, done = {task.name: task for task in chosen}, list[str]()
    while left:
        needs = {name: {w.task for w in task.depends if not w.previous} & left.keys() for name, task in left.items()}
        done.append(next(name for name in left if not needs[name]))
        del left[done[-1]]
    return done


def _having(chosen: Collection[TaskDefinition], planned: Iterable[tuple[TaskDefinition, str]]) -> list[TaskDefinition]:
    """The chosen tasks that have something to do, because their lists are not empty."""
    names = {task.name for task, _ in planned}
    return [task for task in chosen if task.name in names]


def _left_out(defined: Iterable[TaskDefinition], chosen: Collection[TaskDefinition]) -> set[str]:
    """The tasks outside the choice on which chosen tasks depend, directly or through other tasks
    outside.
    """
    left, reached = [*chosen], set[str]()
    for task in left:
        new = {d.name: d for d in defined if d.name in {w.task for w in task.depends if not w.previous}}
        new = {name: d for name, d in new.items() if name not in reached | _names(chosen)}
        reached |= new.keys()
        left += new.values()
    return reached - {COMMIT}


def _names(tasks: Iterable[TaskDefinition]) -> set[str]:
    return {task.name for task in tasks}
