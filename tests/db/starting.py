"""The steps of the machine (``beside``) by which runs begin: commits and their notices, and the runs
that persons and programs ask for.

Commits go to a scripted repository. Their notices wait in a pool, and arrive late, twice, in
another order, or never. The next scan of the repository must bring the ledger to the state that the
rules of the ledger demand (``tests.model.Ledger``).
"""

from __future__ import annotations

from hypothesis import note
from hypothesis import strategies as st

from arkqueue.model import COMMIT, REPORT, End, TaskDefinition, Trigger
from arkqueue.states import State
from tests.db import strategies
from tests.db.together import Together, files_of
from tests.model import Appended, Entry, Key, Kind, Name, Run


class Starting(Together):
    """The machine as far as runs begin."""

    # --- Commits and their notices ---

    def commit(self, data: st.DataObject) -> None:
        """Makes one or more commits, mostly with the definitions of the last commit."""
        branch = data.draw(st.sampled_from([name for name in strategies.BRANCHES if name in self.repository.heads]))
        for _ in range(data.draw(st.sampled_from([1, 1, 1, 1, 3]))):
            before, self.workflow = self.workflow, data.draw(strategies.mostly(self.workflow))
            self.saw("definitions that change", before != self.workflow)
            gap = data.draw(st.sampled_from([1, 1, 1, 3]))
            listed = data.draw(strategies.list_files) if self.workflow.list_files else None
            was = self.repository.heads[branch]
            id = self.repository.commit(branch, self.workflow, data.draw(strategies.changed_paths), gap, listed)
            note(f"commit {id}")
            is_same = was.workflow.list_files and listed in (None, was.listed)
            self.saw("a list file changes", was.workflow.list_files and not is_same)
            self.tell(data, id)
        self.perhaps_look(data)

    def rewrite(self, data: st.DataObject) -> None:
        """Resets a branch, force-pushes new commits, or pushes commits again that were taken off
        the branch.
        """
        branch = data.draw(st.sampled_from([name for name in strategies.BRANCHES if name in self.repository.heads]))
        others = [id for id in self.repository.commits if id.startswith(branch)]
        if data.draw(st.sampled_from("bbp")) == "b":
            self.repository.take_back(branch, data.draw(st.integers(1, 3)))
            self.saw("reset")
        else:
            self.repository.put_back(branch, data.draw(st.sampled_from(others)))
        for _ in range(data.draw(st.sampled_from([0, 1, 2]))):
            self.repository.commit(branch, self.workflow, data.draw(strategies.changed_paths))
        note(f"rewrite {branch} to {[commit.id for commit in self.repository.chain(self.repository.heads[branch].id)]}")
        self.tell(data, self.repository.heads[branch].id)
        self.perhaps_look(data)

    def delete_branch(self, data: st.DataObject) -> None:
        """Deletes the branch ``side``, or brings it back."""
        ids = [id for id in self.repository.commits if id.startswith("side")]
        if "side" not in self.repository.heads:
            id = data.draw(st.sampled_from([self.ledgers["side"].entries[-1].id, *ids]))
            self.repository.put_back("side", id)
            note(f"side comes back at {id}")
            self.tell(data, id)
        elif len(ids) > 2:
            note("side is deleted")
            self.repository.delete("side")
            self.tell(data, ids[-1])
            if data.draw(st.booleans()):
                self.look(data)
                if "side" not in self.repository.heads:
                    self.delete_branch(data)
                return
        self.perhaps_look(data)

    def perhaps_look(self, data: st.DataObject) -> None:
        """Scans the repository at once in half of the cases."""
        if data.draw(st.booleans()):
            self.look(data)

    def tell(self, data: st.DataObject, id: str) -> None:
        """Sends the notice of a commit. A notice is sometimes lost."""
        if data.draw(st.sampled_from("ttttl")) == "t":
            self.notices.append(id)
        else:
            self.saw("a notice is lost")

    def deliver(self, data: st.DataObject) -> None:
        """Delivers one of the waiting notices. Sometimes the notice will arrive a second time."""
        if not self.notices:
            return
        place = data.draw(st.integers(0, len(self.notices) - 1))
        id = self.notices[place]
        self.saw("notices change places", place)
        self.saw("a notice is late", any(id in ledger.kept for ledger in self.ledgers.values()))
        if data.draw(st.sampled_from("ooot")) == "o":
            self.notices.pop(place)
        else:
            self.saw("a notice comes twice")
        self.notify(id)

    def look(self, data: st.DataObject) -> None:
        """Scans the repository, because of a new notice, a periodic scan, or an earlier notice."""
        why = data.draw(st.sampled_from(["notice"] * 4 + ["sweep", "before"]))
        if why == "notice":
            self.deliver(data)
        elif why == "sweep":
            self.sweep()
        self.take_turn(data)

    def notify(self, id: str) -> None:
        """Passes a notice to the subject. Ignored here, because this subject scans
        without notices.
        """

    def sweep(self) -> None:
        """Makes a periodic scan due. Ignored here, because this subject scans without one."""

    def take_turn(self, data: st.DataObject | None = None) -> None:  # noqa: ARG002  # readers draw what happens meanwhile
        """Brings the ledger to the repository's heads. Here this is one step; ``BesideQueue`` has
        real readers, which take several.
        """
        for branch in strategies.BRANCHES:
            if branch not in self.repository.heads:
                if branch not in self.model.deleted_branches:
                    self.both("delete_branch", branch)
                continue
            if branch in self.model.deleted_branches:
                self.both("track", branch)
            revisions, dropped = self.lacking(branch, self.repository.heads[branch].id)
            if revisions:
                self.both("append", branch, revisions, dropped)
        self.check_ledgers()

    def lacking(self, branch: str, head: str, limit: int | None = None) -> tuple[list[Appended], list[int]]:
        """The revisions that a scan with this head of the branch must append, and the numbers that
        it must drop. Enters both into the ledger.
        """
        ledger, chain = self.ledgers[branch], self.repository.chain(head)
        dropped, new = ledger.lacks([commit.id for commit in chain])
        numbers = ledger.drop(dropped)
        self.saw("a rewrite", dropped)
        self.saw("several revisions at once", len(new) > 1)
        revisions = []
        for id in new[:limit]:
            last, commit = ledger.entries[-1], self.repository.commits[id]
            ledger.entries.append(Entry(id, last.number + commit.gap))
            changed = frozenset(self.repository.difference(last.id, id))
            revisions.append(Appended(last.number + commit.gap, commit.workflow, changed, files_of(commit)))
        return revisions, numbers

    def check_ledgers(self) -> None:
        """After an undisturbed scan: every revision of the repository is in the ledger once, in
        order, and no other revision is.
        """
        for branch, ledger in self.ledgers.items():
            gone = branch not in self.repository.heads
            self.check(gone == (branch in self.model.deleted_branches), f"whether {branch} is gone was not seen")
            chain = [] if gone else [commit.id for commit in self.repository.chain(self.repository.heads[branch].id)]
            self.check(gone or ledger.kept == chain, f"{branch} is {chain}, its ledger {ledger.entries}")

    # --- Runs that are asked for ---

    def trigger(self, data: st.DataObject) -> None:
        gone = self.model.deleted_branches
        runs = [run for run in self.model.runs if run.own and not run.dropped and run.branch not in gone]
        if runs:
            run = self.draw_run(data, runs)
            if any(Trigger.SUBMISSION in task.on for task in run.workflow.tasks) and data.draw(st.booleans()):
                self.submit(data, run)
                return
            some = st.lists(st.sampled_from(sorted(task.name for task in run.own)), min_size=1, unique=True)
            self.both("trigger", run.branch, run.place.number, data.draw(st.none() | some), data.draw(st.booleans()))

    def submit(self, data: st.DataObject, run: Run) -> None:
        """Submits at the revision of a run. A task without a list works for its submission alone,
        so a later completion of its name stops neither the submission nor a retry (design 5.19).
        """
        store = data.draw(strategies.stores)
        self.both("submit", run.branch, run.place.number, data.draw(strategies.submitted), store)
        planned = self.model.runs[-1]
        if planned.trigger is not Trigger.SUBMISSION or self.refused:
            return
        self.saw("a submission has attachments", store and any(not task.is_gate for task in planned.own))
        self.saw("a submission has items", any(task.item for task in planned.own))
        self.saw("submit")
        self.saw("a submission waits at no gate", planned.behind and not planned.behind.settled)
        beside = [task for task in planned.own if self.works_beside_newer_work(planned, task.definition)]
        self.saw("a submission beside newer work", beside)
        if beside:
            self.claim_all()
        for task in beside:
            while task.state is State.RUNNING and not task.stop:
                self.both("finish", task.key, End.EXITED, 1)
                if task.state is State.DEFERRED:
                    self.both("due", task.key)
                    self.claim_all()
            if task.state is State.FAILED:
                self.both("retry", task.key, False, judged_again=[task.key])
                self.saw("a retry of a submission beside newer work", self.refused is None)

    def submit_beside_newer_work(self, data: st.DataObject) -> None:
        """Submits at a revision after which a command without a list has completed that the
        submission has as well. If there is no such revision, lets runs proceed until there is one.
        """
        gone = self.model.deleted_branches
        runs = [run for run in self.model.runs if run.own and not run.dropped and run.branch not in gone]
        known = [run for run in runs if self.later_of_submission(run)]
        done = [run for run in known if any(self.works_beside_newer_work(run, task) for task in run.workflow.tasks)]
        if not known:
            return
        run = self.draw_run(data, done or known)
        if run not in done and not self.model.paused:
            key = data.draw(st.sampled_from(self.later_of_submission(run)))
            for other in self.model.on_branch(run.branch):
                if other.place <= key.run_key[1:] and not self.model.task(key).settled:
                    self.settle(other, first=0)
        self.submit(data, run)

    def later_of_submission(self, run: Run) -> list[Key]:
        """The tasks of later revisions whose commands without a list a submission at this run's
        revision would repeat.
        """
        names = {task.name for task in run.workflow.tasks if Trigger.SUBMISSION in task.on and self._is_alone(task)}
        later = [other for other in self.model.on_branch(run.branch) if other.place.number > run.place.number]
        return [other.tasks[Name(name)].key for other in later for name in names if Name(name) in other.tasks]

    def works_beside_newer_work(self, run: Run, task: TaskDefinition) -> bool:
        """Whether a command without a list has completed at a revision later than the run's."""
        highest = self.model.highest.get((run.branch, Name(task.name)), run.place)
        return self._is_alone(task) and Trigger.SUBMISSION in task.on and highest.number > run.place.number

    def _is_alone(self, task: TaskDefinition) -> bool:
        return task.foreach is None and not task.is_gate and task.name not in (COMMIT, REPORT)

    def backfill(self, data: st.DataObject) -> None:
        """Starts a backfill of some revisions of a branch, perhaps with its head, for tasks that
        the head has.
        """
        on_branch: dict[str, list[int]] = {}
        for (branch, number), revision in self.model.revisions.items():
            if not (revision.dropped or branch in self.model.deleted_branches):
                on_branch.setdefault(branch, []).append(number)
        with_tasks = {branch: self._tasks_of(branch, max(numbers)) for branch, numbers in on_branch.items()}
        if branches := sorted(branch for branch, names in with_tasks.items() if names):
            branch = data.draw(st.sampled_from(branches))
            first, last = sorted(data.draw(st.lists(st.sampled_from(on_branch[branch]), min_size=2, max_size=2)))
            some = with_tasks[branch]
            head = self.model.revisions[branch, self.last(branch)]
            of_files = sorted(task.name for task in head.workflow.tasks if strategies.is_of_file(task))
            others = [n for n in on_branch[branch] if self.model.revisions[branch, n].files != head.files]
            force = data.draw(st.booleans())
            if of_files and others and data.draw(st.sampled_from([True, True, False])):
                some, first, force = of_files, data.draw(st.sampled_from(others)), True
                last = max(first, last)
            names = data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=2, unique=True))
            self.both("backfill", branch, first, last, names, force)
            runs = [run for run in self.model.on_branch(branch) if run.fill]
            self.saw("a backfill of several revisions", len(runs) > 1)
            self.saw("a backfill reads a list file at an old revision", any(map(self._reads_another_list, runs)))
            self.saw(
                "a backfill waits for the revision before",
                any(
                    edge.crossing and edge.kind is Kind.IMPLICIT and not edge.met
                    for run in runs
                    for task in run.own
                    for edge in task.into
                ),
            )

    def _reads_another_list(self, run: Run) -> bool:
        """Whether the list file has other items at the revision of a backfill's run than at the
        head.
        """
        files = self.model.revisions[run.branch, run.place.number].files
        head = self.model.revisions[run.branch, self.last(run.branch)].files
        return files != head and any(
            task.name in run.chosen and strategies.is_of_file(task) for task in run.workflow.tasks
        )

    def _tasks_of(self, branch: str, number: int) -> list[str]:
        tasks = self.model.revisions[branch, number].workflow.tasks
        return sorted(task.name for task in tasks if task.name not in (COMMIT, REPORT))
