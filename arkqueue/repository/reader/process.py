"""A reader process: reads repositories for the server, one call at a time, and answers over the
socket that is its standard input.

It is the only process of a server in which libsvn and libgit2 run. So a committed file can make
this process crash, compute without end or use up its memory, but not the server. `client` starts
it, gives it a deadline for each answer, and ends it if it misses the deadline. The kernel enforces
its memory limit (RLIMIT_DATA): allocations count, packs of Git that libgit2 maps into memory do
not. A watch from outside would be too slow: a tree of a kilobyte can take a gigabyte in a second.

It keeps an archive open for a while, because commits come in bursts. Run as ``python -m``. Its
arguments are the memory limit in bytes, and the kinds of repositories whose libraries it loads at
once.
"""

from __future__ import annotations

import gc
import os
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from arkqueue.model import ArchiveKind, Origin
from arkqueue.repository.credentials import Handover
from arkqueue.repository.following.allowance import Following, Login
from arkqueue.repository.git import program
from arkqueue.repository.limits import TooManyPaths
from arkqueue.repository.protocol import Advance, Archive, NewBranch, open_archive
from arkqueue.repository.reader.frames import Malformed, frame, receive
from arkqueue.repository.reader.messages import (
    COMMIT,
    put_advance,
    put_changes,
    put_error,
    put_fork,
    put_identity,
    put_revision,
    put_survey,
    put_update,
    take_all_known,
    take_fork,
    take_known,
    take_location,
    take_revision,
    take_survey_options,
)
from arkqueue.repository.reader.workflows import judge_payload, put_file, put_lists, put_workflow

OUT_OF_MEMORY, TERMINATED = 71, 72
"""The exit codes of a reader whose memory ran out, and of one whose server has ended."""
MOST_OPEN = 64
"""The most archives that are open at the same time."""
QUIET = 20.0
"""Seconds without a call after which an archive is closed. Commits come in bursts."""
MOST_AHEAD = 20
"""The most revisions that are sent along with the heads. If there are more, they are asked for."""
GROWN = 2**28
"""The bytes of memory after which a process is replaced once it has answered, because it does not
give all of them back.
"""
SPARE = 5.0
"""Seconds after a deadline at which a reader ends by itself, in case no server is left to end it."""

Given = dict[str, Any]
Place = tuple[Any, ...]
"""An archive's location, with the folder of its mirror and the time limit of a transfer."""


def main() -> None:
    connection = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory(int(sys.argv[1]))
    # Load the libraries before the first call, for which a notice waits.
    if ArchiveKind.GIT in sys.argv[2:]:
        import arkqueue.repository.git.repository
    if ArchiveKind.SUBVERSION in sys.argv[2:]:
        import arkqueue.repository.subversion.repository  # noqa: F401
    threading.Thread(target=_watch, args=(connection,), name="end with the server", daemon=True).start()
    gc.collect()
    gc.freeze()
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(frame({"ready": True}))
        _Reader(connection).serve()


def _limit_memory(limit: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _watch(connection: socket.socket) -> None:
    """End this process, and the git that it runs, when the server closes the connection or ends,
    also in the middle of a call.
    """
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    poll.poll()
    program.end_all()
    os._exit(TERMINATED)


class _Reader:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._opened: OrderedDict[Place, _Opened] = OrderedDict()
        """The open archives, the longest unused first."""
        self._memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)

    def serve(self) -> None:
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        while True:
            while self._opened and not poll.poll(self._until_quiet() * 1000):
                self._close_quiet()
            request = receive(self._connection)
            if request is None:
                return
            # The signal ends the process even during a call into a library that never returns to
            # the interpreter.
            signal.setitimer(signal.ITIMER_REAL, request["deadline"] + SPARE if request["deadline"] else 0)
            try:
                answer = self._answer(request)
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._connection.sendall(answer)

    def _until_quiet(self) -> float:
        """Seconds until the archive that was used longest ago is to be closed."""
        return max(0.0, next(iter(self._opened.values())).used + QUIET - time.monotonic())

    def _close_quiet(self) -> None:
        while self._opened and self._until_quiet() <= 0:
            self._opened.popitem(last=False)

    def _answer(self, request: Given) -> bytes:
        try:
            if (judge := OF_NO_REPOSITORY.get(request["call"])) is not None:
                answer = {"answer": judge(request["given"])}
            else:
                answer = {"answer": CALLS[request["call"]](self._archive(request), request["given"])}
        except Exception as error:
            if _is_out_of_memory(error):
                raise MemoryError from error
            answer = {"error": put_error(error)}
        if int(os.pread(self._memory, 100, 0).split()[1]) * resource.getpagesize() > GROWN:
            answer["last"] = True
        try:
            return frame(answer)
        except Malformed as error:
            if request["call"] in ("survey", "update"):
                # The changes are left out. A task that wants them asks for them again.
                said = answer["answer"]
                (said["survey"] if request["call"] == "update" else said)["changes"] = None
                return frame(answer)
            if request["call"] in ("changed_paths", "changes"):
                # The names of that many paths are longer than a frame may be.
                return frame({"error": put_error(TooManyPaths(_count(answer["answer"])))})
            return frame({"error": put_error(error)})

    def _archive(self, request: Given) -> Archive:
        """The archive of a request. A scan of a repository and the tasks that take its files share
        the open one, and what it has read. If the caller's archive was made after this one was
        opened, it is opened again, because the repository may have been removed or replaced since.
        """
        mirror, timeout, now = request["mirror"], request["timeout"], time.monotonic()
        key = (*request["location"], mirror, timeout)
        self._close_quiet()
        found = self._opened.pop(key, None)
        if found is None or found.since < request["since"]:
            archive = open_archive(
                take_location(request["location"]), mirror=Path(mirror) if mirror else None, timeout=timeout
            )
            found = _Opened(archive, now, now)
        found.used = now
        self._opened[key] = found
        if len(self._opened) > MOST_OPEN:
            self._opened.popitem(last=False)
        return found.archive


@dataclass(slots=True)
class _Opened:
    """An open archive, and the times at which it was opened and last used."""

    archive: Archive
    since: float
    used: float


def _count(paths: Any) -> int:
    return len(paths["paths"] if isinstance(paths, dict) else paths)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """True if memory ran out; also if libgit2 says so and its caller has taken that for a fault of
    the repository.
    """
    while error is not None:
        if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
            return True
        error = error.__cause__
    return False


def _files(given: Given) -> dict[str, Any]:
    return {"recorded": given["recorded"] and take_revision(given["recorded"])}


def _survey(archive: Archive, given: Given) -> dict[str, Any]:
    return put_survey(archive.survey(given["revision_id"], take_survey_options(given["options"]), **_files(given)))


def _update(archive: Archive, given: Given) -> dict[str, Any]:
    survey, change = archive.update(
        given["before"],
        given["revision_id"],
        Path(given["target"]),
        options=take_survey_options(given["options"]),
        good=given["good"] and Path(given["good"]),
        before_key=given["before_key"],
        others=given["others"],
        early=given["early"],
        **_files(given),
    )
    return put_update(survey, change)


def _working_copy(archive: Archive, given: Given) -> str | None:
    origin, handover = given["origin"], given["handover"]
    path = archive.working_copy(
        given["revision_id"],
        given["branch"],
        Path(given["target"]),
        author=given["author"],
        origin=Origin(*origin) if origin else None,
        handover=Handover(*map(Path, handover)) if handover else None,
        **_files(given),
    )
    return None if path is None else str(path)


def _follow(archive: Archive, given: Given) -> dict[str, Any]:
    following = Following(tuple(given["prefixes"]), tuple(Login(*login) for login in given["logins"]))
    followed = archive.follow(given["revision_id"], Path(given["target"]), following, **_files(given))
    return {"notes": list(followed.notes), "wanted": list(followed.wanted)}


def _heads(archive: Archive, given: Given) -> dict[str, Any]:
    """The heads, and what a scan needs next, because each further call would cost another exchange:
    the main branch, the known revisions that exist, and the advance of a branch that has moved.
    """
    known = given["known"]
    last_of_all = take_all_known(known)
    heads = archive.heads(tuple(given["branches"]), given["main"], last_of_all)
    fingerprint = archive.fingerprint and archive.fingerprint.hex()
    gone = [name for name in known if name not in heads] if known else None
    # A commit of Git that is the head of a branch exists, and needs no further proof. The revision
    # of Subversion may be another one.
    kept = {name: one[0] for name, one in known.items() if len(one) == COMMIT}
    others = {name: id for name, id in heads.items() if kept.get(name) != id}
    found: dict[str, Any] = {
        "heads": others, "gone": gone, "main": None, "are_checked": False, "moved": None, "ahead": None,
        "fingerprint": fingerprint,
    }  # fmt: skip
    with suppress(Exception):  # a later call meets the same error and reports it
        found["main"] = archive.main_branch(given["main"])
        last = {name: last_of_all[name] for name in others if name in known}
        archive.check_known(*last.values())
        found["are_checked"] = True
        moved = [name for name, one in last.items() if heads[name] != one.id]
        if len(moved) == 1:
            found["moved"] = moved[0]
            advance = archive.advance(moved[0], last[moved[0]], heads[moved[0]], limit=MOST_AHEAD)
            if advance.complete:
                found["ahead"] = _with_keys(archive, advance)
    return found


def _forks(archive: Archive, given: Given) -> dict[str, Any]:
    new = [NewBranch(*branch) for branch in given["new"]]
    found = archive.forks(new, given["others"], at_once=given["at_once"])
    return {name: put_fork(fork) for name, fork in found.items()}


def _advance(archive: Archive, given: Given) -> dict[str, Any]:
    """An advance; if asked for, with the keys of the workflow files, each of which would otherwise
    need a call.
    """
    advance = archive.advance(
        given["branch"],
        given["known"] and take_known(given["known"]),
        given["new_head"],
        limit=given["limit"],
        fork=given["fork"] and take_fork(given["fork"]),
        digests=given["digests"],
    )
    return _with_keys(archive, advance) if given["keys"] else {**put_advance(advance), "keys": {}}


def _with_keys(archive: Archive, advance: Advance) -> dict[str, Any]:
    keys = {}
    with suppress(Exception):  # a later call meets the same error and reports it
        for revision in advance.revisions:
            if not revision.oversized:
                keys[revision.id] = archive.workflows_key(revision.id)
    return {**put_advance(advance), "keys": keys}


def _of(revision: Any) -> Any:
    return None if revision is None else put_revision(revision)


CALLS: dict[str, Callable[[Archive, Given], Any]] = {
    "identity": lambda archive, _: put_identity(archive.identity()),
    "main_branch": lambda archive, given: archive.main_branch(given["known"]),
    "heads": _heads,
    "baseline": lambda archive, given: _of(archive.baseline(given["branch"], given["at"], digests=given["digests"])),
    "has": lambda archive, given: archive.has(given["revision"]),
    "baselines": lambda archive, given: {
        name: put_revision(one) for name, one in archive.baselines(given["heads"]).items()
    },
    "check_known": lambda archive, given: archive.check_known(*map(take_known, given["known"])),
    "check_gone": lambda archive, given: archive.check_gone(given["branch"]),
    "check_heads": lambda archive, given: archive.check_heads(given["heads"]),
    "forks": _forks,
    "advance": _advance,
    "workflows_key": lambda archive, given: archive.workflows_key(given["revision_id"]),
    "read_workflows": lambda archive, given: [put_file(file) for file in archive.read_workflows(given["revision_id"])],
    "workflow": lambda archive, given: put_workflow(
        archive.read_workflows(given["revision_id"]),
        partial(archive.read_list, given["revision_id"]),
        given["most_items"],
    ),
    "lists": lambda archive, given: put_lists(
        [(path, key) for path, key in given["wanted"]],
        partial(archive.read_list, given["revision_id"]),
        given["most_items"],
    ),
    "read_list": lambda archive, given: put_file(archive.read_list(given["revision_id"], given["path"])),
    "changed_paths": lambda archive, given: archive.changed_paths(given["previous"], given["revision_id"]),
    "changes": lambda archive, given: put_changes(
        archive.changes(given["base"], given["revision_id"], most=given["most"], **_files(given))
    ),
    "not_followed": lambda archive, given: archive.not_followed(given["revision_id"]),
    "export": lambda archive, given: archive.export(
        given["revision_id"], Path(given["target"]), tuple(given["paths"]), early=given["early"], **_files(given)
    ),
    "survey": _survey,
    "update": _update,
    "working_copy": _working_copy,
    "follow": _follow,
}

OF_NO_REPOSITORY: dict[str, Callable[[Given], Any]] = {"judge_payload": judge_payload}
"""Calls without a repository, which validate submitted payloads."""

if __name__ == "__main__":
    main()
