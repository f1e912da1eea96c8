"""An archive that reader processes read: the `Archive` of the server, which imports neither libsvn
nor libgit2.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from arkqueue.model import (
    MOST_ITEMS,
    ArchiveKind,
    Fault,
    FileChange,
    Item,
    Origin,
    Revision,
    SourceFile,
    TreeChange,
    Workflow,
)
from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Followed, Following
from arkqueue.repository.limits import MOST_FOLLOWED_BYTES, MOST_FOLLOWED_SECONDS, MOST_PATHS
from arkqueue.repository.location import Identity, Location
from arkqueue.repository.protocol import ONLY_KEY, Advance, Fork, Known, NewBranch, Survey, SurveyOptions
from arkqueue.repository.reader import client
from arkqueue.repository.reader.client import Call, ReaderProcesses
from arkqueue.repository.reader.frames import Malformed, nothing, optional, text, texts, truth
from arkqueue.repository.reader.messages import (
    inside,
    put_fork,
    put_known,
    put_location,
    put_new_branch,
    put_revision,
    put_survey_options,
    take_advance,
    take_baselines,
    take_changes,
    take_followed,
    take_forks,
    take_heads,
    take_identity,
    take_revision,
    take_survey,
    take_update,
)
from arkqueue.repository.reader.workflows import take_file, take_files, take_lists, take_workflow
from arkqueue.repository.tree_writer import Early

T = TypeVar("T")


class ReadArchive:
    """An `Archive` whose calls run in a reader process. ``timeout``: seconds for one transfer by
    git. ``most_items``: the most items of a list.
    """

    def __init__(
        self,
        location: Location,
        mirror: Path | None = None,
        *,
        timeout: float = 600.0,
        most_items: int = MOST_ITEMS,
        processes: ReaderProcesses = client.processes,
    ) -> None:
        self._location, self._mirror, self._timeout, self._processes = location, mirror, timeout, processes
        self._most_items = most_items
        self._since = time.monotonic()
        """A process opens its archive again if it was open before that time."""
        self._heads: dict[str, str] = {}
        """The heads that `heads` found."""
        self._main: tuple[str | None, str] | None = None
        """The main branch that `heads` found, and the known main branch of that call."""
        self._checked: dict[tuple[str, int], Known] = {}
        """The known revisions that the last `heads` found in the repository, by id and number."""
        self._ahead: tuple[tuple[str, str, str], Advance] | None = None
        """The advance that came with the last `heads`, with its branch, its known revision and its
        head.
        """
        self.fingerprint: bytes | None = None
        self._workflows_keys: dict[str, str] = {}
        """The keys of the revisions that `advance` found."""

    # Registration and looks

    def identity(self) -> Identity:
        identity = self._read("identity", "asking for its identity", take_identity)
        if self._location.kind is ArchiveKind.SUBVERSION and not self._location.uuid:
            # Another process will open it again, and must not take another repository for this one.
            self._location = replace(self._location, uuid=identity.uuid)
        return identity

    def main_branch(self, known: str | None = None) -> str:
        if self._location.kind is ArchiveKind.SUBVERSION:
            return ""
        if self._main is not None and self._main[0] == known:
            return self._main[1]
        return self._read("main_branch", "asking for its HEAD", text, known=known)

    def heads(
        self, branches: Sequence[str] = (), main: str | None = None, known: Mapping[str, Known] | None = None
    ) -> dict[str, str]:
        known, kind = known or {}, self._location.kind
        plain: dict[str, Any] = {"branches": list(branches), "main": main, "known": {}}
        given = {**plain, "known": {name: put_known(one, kind) for name, one in known.items()}}
        doing = "asking for its heads and new revisions" if known else "asking for its heads"
        found = self._read("heads", doing, take_heads, plain, **given)
        there = {} if found.gone is None else {name: one for name, one in known.items() if name not in found.gone}
        self._heads = {**{name: one.id for name, one in there.items()}, **found.heads}
        self._workflows_keys, self.fingerprint = found.workflows_keys, found.fingerprint
        self._main = None if found.main is None else (main, found.main)
        self._checked = {(one.id, one.number): one for one in there.values()} if found.are_checked else {}
        self._ahead = None
        if found.ahead is not None and (name := found.moved) in known and name in self._heads:
            self._ahead = (name, known[name].id, self._heads[name]), found.ahead
        return dict(self._heads)

    def baseline(self, branch: str, at: str | None = None, *, digests: bool = True) -> Revision | None:
        doing = f"looking up revision {at or 'HEAD'}"
        given = {"branch": branch, "at": at, "digests": digests}
        again = {**given, "digests": False}
        return self._read("baseline", doing, optional(take_revision), again, **given)

    def has(self, revision: str) -> bool:
        """True if the repository has a revision. Revisions of the last scan need no further call."""
        if revision in self._workflows_keys or revision in self._heads.values():
            return True
        return self._read("has", f"looking for revision {revision}", truth, revision=revision)

    def baselines(self, heads: Mapping[str, str]) -> dict[str, Revision]:
        return self._read("baselines", "looking up the heads of its branches", take_baselines, heads=dict(heads))

    def check_known(self, *known: Known) -> None:
        """A revision that the last `heads` found is not looked up again."""
        checked = self._checked
        found = [put_known(one, self._location.kind) for one in known if checked.get((one.id, one.number)) != one]
        if found:
            self._read("check_known", "looking for the known revisions", nothing, known=found)

    def check_gone(self, branch: str) -> None:
        self._read("check_gone", f"looking for branch {branch}", nothing, branch=branch)

    def check_heads(self, heads: Mapping[str, str]) -> None:
        if self._location.kind is ArchiveKind.GIT:
            self._read("check_heads", "reading the heads of its branches", nothing, heads=dict(heads))

    # The ledger

    def forks(self, new: Sequence[NewBranch], others: Collection[str], *, at_once: bool = True) -> dict[str, Fork]:
        """If the process breaks, the second one judges each branch apart, because it may have too
        little memory for all at once.
        """
        given = {"new": [put_new_branch(branch) for branch in new], "others": list(others), "at_once": at_once}
        doing = "looking for the beginnings of its new branches"
        return self._read("forks", doing, take_forks, {**given, "at_once": False}, **given)

    def advance(
        self,
        branch: str,
        known: Known | None,
        new_head: str,
        *,
        limit: int = 1000,
        fork: Fork | None = None,
        digests: bool = True,
    ) -> Advance:
        """An advance that came with the last `heads` is not asked for again."""
        if known is not None and fork is None and self._ahead is not None:
            asked, ahead = self._ahead
            if asked == (branch, known.id, new_head) and len(ahead.revisions) <= limit:
                return ahead
        given = {
            "branch": branch,
            "known": known and put_known(known, self._location.kind),
            "new_head": new_head,
            "limit": limit,
            "fork": fork and put_fork(fork),
            "keys": True,
            "digests": digests,
        }
        # The workflow files or the many paths of one revision may break the process. The second try
        # leaves them out, so that the other revisions are still listed.
        again = {**given, "keys": False, "digests": False}
        doing = f"listing the new revisions up to {new_head}"
        advance, self._workflows_keys = self._read("advance", doing, take_advance, again, **given)
        return advance

    # One revision

    def workflows_key(self, revision_id: str) -> str:
        if revision_id in self._workflows_keys:
            return self._workflows_keys[revision_id]
        doing = f"looking for the workflow files of revision {revision_id}"
        return self._read("workflows_key", doing, text, revision_id=revision_id)

    def read_workflows(self, revision_id: str) -> tuple[SourceFile, ...]:
        doing = f"reading the workflow files of revision {revision_id}"
        return self._read("read_workflows", doing, take_files, revision_id=revision_id)

    def read_list(self, revision_id: str, path: str) -> SourceFile:
        doing = f"reading a list of revision {revision_id}"
        return self._read("read_list", doing, take_file, revision_id=revision_id, path=path)

    def lists(
        self, revision_id: str, wanted: Sequence[tuple[str, str | None]]
    ) -> tuple[list[tuple[Item, ...]], list[Fault]]:
        doing, take = f"reading lists of revision {revision_id}", take_lists(len(wanted))
        given: dict[str, Any] = {"wanted": [list(one) for one in wanted], "most_items": self._most_items}
        return self._read("lists", doing, take, revision_id=revision_id, **given)

    def workflow(self, revision_id: str) -> Workflow:
        doing = f"judging the workflow files of revision {revision_id}"
        return self._read("workflow", doing, take_workflow, revision_id=revision_id, most_items=self._most_items)

    def changed_paths(self, previous: str | None, revision_id: str) -> tuple[str, ...]:
        doing = f"comparing revision {revision_id} with the one before"
        return self._read("changed_paths", doing, texts, previous=previous, revision_id=revision_id)

    def changes(
        self, base: str | None, revision_id: str, *, most: int = MOST_PATHS, recorded: Revision | None = None
    ) -> tuple[FileChange, ...]:
        doing = f"comparing revision {revision_id} with {base or 'nothing'}"
        given: dict[str, Any] = {
            "base": base,
            "revision_id": revision_id,
            "most": most,
            "recorded": _recorded(recorded),
        }
        return self._read("changes", doing, take_changes, **given)

    def not_followed(self, revision_id: str) -> tuple[str, ...]:
        doing = f"looking for the references of revision {revision_id}"
        return self._read("not_followed", doing, texts, revision_id=revision_id)

    # Files for a task

    def export(
        self,
        revision_id: str,
        target: Path,
        paths: Sequence[str] = (),
        *,
        recorded: Revision | None = None,
        early: Early | None = None,
    ) -> None:
        self._write(
            "export",
            f"writing the files of revision {revision_id}",
            nothing,
            revision_id=revision_id,
            target=str(target),
            paths=list(paths),
            recorded=_recorded(recorded),
            early=dict(early or {}),
        )

    def survey(
        self, revision_id: str, options: SurveyOptions = ONLY_KEY, *, recorded: Revision | None = None
    ) -> Survey:
        return self._read(
            "survey",
            f"looking up revision {revision_id}",
            take_survey,
            revision_id=revision_id,
            options=put_survey_options(options),
            recorded=_recorded(recorded),
        )

    def update(
        self,
        before: str,
        revision_id: str,
        target: Path,
        *,
        options: SurveyOptions = ONLY_KEY,
        good: Path | None = None,
        before_key: str | None = None,
        others: Collection[str] = (),
        recorded: Revision | None = None,
        early: Early | None = None,
    ) -> tuple[Survey, TreeChange | None]:
        return self._write(
            "update",
            f"writing the files of revision {revision_id}",
            take_update,
            before=before,
            options=put_survey_options(options),
            good=None if good is None else str(good),
            before_key=before_key,
            others=list(others),
            revision_id=revision_id,
            target=str(target),
            recorded=_recorded(recorded),
            early=dict(early or {}),
        )

    def working_copy(
        self,
        revision_id: str,
        branch: str,
        target: Path,
        *,
        author: str,
        origin: Origin | None = None,
        handover: Handover | None = None,
        recorded: Revision | None = None,
    ) -> Path | None:
        return self._write(
            "working_copy",
            f"making a working copy of revision {revision_id}",
            inside(target),
            revision_id=revision_id,
            branch=branch,
            target=str(target),
            author=author,
            origin=[origin.task, origin.generation] if origin else None,
            handover=[str(handover.folder), str(handover.seen)] if handover else None,
            recorded=_recorded(recorded),
        )

    def follow(
        self, revision_id: str, target: Path, following: Following, *, recorded: Revision | None = None
    ) -> Followed:
        """This process counts the written bytes as well, because libsvn reports nothing during a
        checkout.
        """
        given: dict[str, Any] = {
            "revision_id": revision_id,
            "target": str(target),
            "prefixes": list(following.prefixes),
            "logins": [[login.url, login.username, login.password] for login in following.logins],
            "recorded": _recorded(recorded),
        }
        call = Call(
            self._location.shown,
            f"fetching the references of revision {revision_id}",
            self._request("follow", 0, given),
            client.TRANSFER_DEADLINE,
            writes=True,
            longest=MOST_FOLLOWED_SECONDS,
            most_written=2 * MOST_FOLLOWED_BYTES,
        )
        return self._ask(call, take_followed)

    # Below

    def _read(
        self, call: str, doing: str, take: Callable[[Any], T], again: dict[str, Any] | None = None, **given: Any
    ) -> T:
        deadline = client.TRANSFER_DEADLINE if self._mirror else client.DEADLINE
        request = self._request(call, deadline, given)
        second = self._request(call, deadline, again) if again else None
        return self._ask(Call(self._location.shown, doing, request, deadline, again=second), take)

    def _write(self, call: str, doing: str, take: Callable[[Any], T], **given: Any) -> T:
        deadline = client.TRANSFER_DEADLINE if self._mirror else client.DEADLINE
        request = self._request(call, 0, given)
        return self._ask(Call(self._location.shown, doing, request, deadline, writes=True), take)

    def _request(self, call: str, deadline: float, given: dict[str, Any]) -> dict[str, Any]:
        return {
            "since": self._since,
            "location": put_location(self._location),
            "mirror": str(self._mirror) if self._mirror else None,
            "timeout": self._timeout,
            "deadline": deadline,
            "call": call,
            "given": given,
        }

    def _ask(self, call: Call, take: Callable[[Any], T]) -> T:
        said = self._processes.call(call)
        try:
            return take(said)
        except Malformed as error:
            raise self._processes.malformed(call, error) from None


def _recorded(revision: Revision | None) -> dict[str, Any] | None:
    return None if revision is None else put_revision(revision, with_message=False)
