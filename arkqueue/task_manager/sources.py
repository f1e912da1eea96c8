"""The sources of attempts: frozen definitions, inputs, and opened repositories.

Definitions never change, so they are cached by id. An opened archive belongs to one thread
(``repository``), so each worker keeps a few of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from arkqueue import workflow
from arkqueue.config import Configuration
from arkqueue.errors import Conflict, Elsewhere, Withheld
from arkqueue.gateway import Gateway
from arkqueue.model import (
    AttemptKind,
    Claim,
    Handed,
    Registration,
    Revision,
    Scratch,
    TaskDefinition,
    TaskId,
    TaskKind,
    Trigger,
)
from arkqueue.repository import Archive, Following, Location
from arkqueue.repository.opening import following_of, location_of, open_location

MOST_DEFINITIONS = 2000
MOST_EARLY_BRANCHES = 100
MOST_OPEN = 4
"""Open archives of one worker."""


class Sources:
    """Any thread may call it."""

    def __init__(self, gateway: Gateway, configuration: Configuration, store: str) -> None:
        """``store``: the id of the place of this task manager's scratch folders."""
        self._gateway, self._configuration, self._store = gateway, configuration, store
        self._lock = threading.Lock()
        self._bodies: OrderedDict[int, Any] = OrderedDict()
        self._definitions: dict[int, TaskDefinition] = {}
        self._early: OrderedDict[tuple[int, str], tuple[int, dict[str, int]]] = OrderedDict()
        """By archive and branch: the value of `Claim.early` at the last query, and its result."""
        self._threads = threading.local()

    def fetch_definitions(self, ids: Collection[int]) -> None:
        """Fetch the definitions that the cache lacks, in one call."""
        with self._lock:
            missing = sorted({id for id in ids if id not in self._bodies})
        if missing:
            found = self._gateway.definitions(missing)
            with self._lock:
                self._bodies.update(found)
                while len(self._bodies) > MOST_DEFINITIONS:
                    self._definitions.pop(self._bodies.popitem(last=False)[0], None)

    def definition(self, id: int) -> TaskDefinition:
        """A frozen definition. It is parsed here, and not when it is fetched, so that a definition
        that cannot be parsed affects its own attempt only.
        """
        self.fetch_definitions([id])
        with self._lock:
            known, body = self._definitions.get(id), self._bodies.get(id)
        if known is not None:
            return known
        try:
            definition = workflow.from_database(body)
        except Conflict:
            # The next attempt fetches the definition again, which somebody may have repaired.
            with self._lock:
                self._bodies.pop(id, None)
            raise
        with self._lock:
            if id in self._bodies:
                self._definitions[id] = definition
        return definition

    def inputs(self, claims: Sequence[Claim]) -> dict[TaskId, dict[str, Any]]:
        """The content of INPUTS for each task that has any: the outputs of the tasks that it depends
        on, for a polled task also its own outputs, and for REPORT the report.
        """
        self.fetch_definitions([claimed.definition for claimed in claims])
        with self._lock:
            # If a definition has left the cache, the inputs of its task are asked for anyway.
            bodies = {claimed.task: self._bodies.get(claimed.definition) for claimed in claims}
        polled = {claimed.task for claimed in claims if claimed.kind is AttemptKind.POLL}
        reports = [claimed.task for claimed in claims if claimed.task_kind is TaskKind.REPORT]
        tasks = [
            task for task, body in bodies.items() if not isinstance(body, dict) or body.get("depends") or task in polled
        ]
        found = self._gateway.inputs(tasks) if tasks else {}
        return found | {task: self._gateway.report(task) for task in reports}

    def scratch(self, claim: Claim, lack: Withheld | None) -> Scratch:
        """The scratch folder of a claim's run or item. Raises Elsewhere if it is on another host, or
        the attempt is not ours any more. ``lack``: the error to raise if it does not exist yet;
        None: it can be made.
        """
        found = self._gateway.scratch(claim.attempt, may_begin=lack is None)
        if found is None and lack is not None:
            raise lack
        if found is None:
            raise Elsewhere("scratch folder", "the attempt is not ours any more")
        if found.store != self._store:
            raise Elsewhere("scratch folder", f"it is on another host ({found.store[:8]}), which runs the task")
        return found

    def scratch_made(self, scratch: Scratch) -> None:
        """Record that a scratch folder exists, unless that is known."""
        if not scratch.is_made:
            self._gateway.scratch_made(scratch.id)

    def submission(self, claim: Claim) -> Handed | None:
        """The submission that a claim's run was made for; None: it was made for none."""
        return self._gateway.submission(claim.task) if claim.trigger == Trigger.SUBMISSION else None

    def payload(self, claim: Claim) -> Iterator[bytes]:
        """The unchanged payload of a claim's submission, in parts."""
        position = 0
        while (part := self._gateway.payload_part(claim.task, position)) is not None:
            yield part
            position += 1

    def scratch_lost(self, scratch: Scratch) -> None:
        """Record that a scratch folder is gone."""
        self._gateway.scratch_lost(scratch.id)

    def base(self, claim: Claim) -> Revision | None:
        """The base revision of a claim, as the ledger has it; None: the claim has no base."""
        return self._gateway.base(claim.attempt) if claim.base is not None else None

    def early(self, claim: Claim) -> Mapping[str, int]:
        """The times at which revisions of the claim's branch were read whose dates were then in the
        future. The database is asked only if there are new ones.
        """
        if claim.early is None:
            return {}
        branch = claim.archive.id, claim.branch
        with self._lock:
            known = self._early.get(branch)
        if known is None or known[0] < claim.early:
            known = claim.early, self._gateway.early(claim.attempt)
            with self._lock:
                self._early[branch] = known
                if len(self._early) > MOST_EARLY_BRANCHES:
                    self._early.popitem(last=False)
        return known[1]

    def following(self, archive: Registration, url: str) -> Following:
        """The references that working copies of the repository at ``url`` follow, with the present
        passwords.
        """
        return following_of(self._configuration, url, archive.settings.follow)

    def open(self, archive: Registration, url: str) -> Archive:
        """The repository at ``url`` (the archive's, or the one to which its tasks commit), opened by
        this thread.
        """
        opened: OrderedDict[Location, Archive] = self._threads.__dict__.setdefault("opened", OrderedDict())
        # The password is read each time: somebody may have changed its file.
        location = location_of(self._configuration, url, archive.kind, archive.uuid)
        if location not in opened:
            opened[location] = open_location(self._configuration, location)
            if len(opened) > MOST_OPEN:
                opened.popitem(last=False)
        opened.move_to_end(location)
        return opened[location]
