"""The difference between the history of a Git branch and its ledger: new commits, commits that are
gone, and the data of each.

The ledger of a branch holds first-parent commits (design 5.16): each is what one push or merge
brought to the branch. So `advance` asks which commits of the new head's first-parent chain the last
known commit does not contain. The ``new ^known`` walks of git and libgit2 go by commit dates. If
clocks were wrong, these walks name commits that ``known`` does contain. On a first-parent chain,
all commits behind the first ancestor of ``known`` are ancestors too. So a search that doubles its
step and then halves it finds the exact place with a few ancestry questions.

A revision's ``author`` is the author of the commit; its ``date`` is the committer's date.

Nothing here opens a repository or asks a remote. Called by `git`.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, takewhile

import pygit2

from arkqueue.model import Revision
from arkqueue.repository import Advance, Fork, Known, within_calendar
from arkqueue.repository.git.commits import LONGEST_COMMIT, contains, first_parent, has_object, parents, read_commit
from arkqueue.repository.limits import bounded
from arkqueue.repository.origin import origin_of_message

MOST_MERGES = 50
"""The most dropped merges whose other parents are followed. Each needs the question whether the new
history holds them, which may walk all of it. If a whole history is replaced, its first parents are
enough.
"""

_ENCODINGS = re.compile(
    r"ascii|utf-(8|16|32).*|iso8859-\d+|cp\d+|koi8-.|mac-.*|tis-620|euc_.*|shift_jis.*|iso2022_.*|gb.*|hz|big5.*|johab|ptcp154"
)
"""The allowed encodings of messages. Python knows others, some of which take hours for a megabyte
(punycode).
"""


def followed(repository: pygit2.Repository, new: pygit2.Oid, old: pygit2.Oid, number: int, limit: int) -> Advance:
    """The commits that bring the ledger of a branch from its last known commit ``old``, its
    ``number``-th, to its head ``new``.
    """
    if old == new:
        return Advance()
    added = new_to(repository, new, [old]).new
    if contains(repository, new, old):  # a fast-forward, even if `old` is not on the first-parent chain
        return _appended(repository, added, number, limit)
    # If nothing is new, the branch was reset to an ancestor, which is appended again.
    return _appended(repository, added or (new,), number, limit, dropped=_dropped(repository, old, new))


def begun(
    repository: pygit2.Repository,
    new: pygit2.Oid,
    fork: Fork | None,
    known: Known | None,
    limit: int,
    counts: dict[pygit2.Oid, int] | None = None,
) -> Advance:
    """The ledger of a new branch: the whole history if there is no ``fork``; otherwise from where it
    left the others. ``counts``: as in `counted`.

    That place is the parent of its first own commit, and not a newer merge base that was merged in
    later: the tree difference of the first own commit is the one to its parent. A branch that comes
    back continues its numbers. Its last ``known`` commit may be gone, as no ref has held it since
    the branch was deleted.
    """
    own = tuple(islice(first_parents(repository, new), None if fork is None else fork.own))
    if known is not None:
        old = [pygit2.Oid(hex=known.id)] if has_object(repository, known.id) else []
        if new in old:
            return Advance()
        dropped = tuple(id for head in old for id in _dropped(repository, head, new))
        return _appended(repository, own or (new,), known.number, limit, dropped=dropped)
    if not own:
        return Advance(revisions=(counted(repository, new, counts),))
    if fork is None or fork.at is None:
        return _appended(repository, own, 0, limit)
    base = counted(repository, pygit2.Oid(hex=fork.at), counts)
    return _appended(repository, own, base.number, limit, baseline=base)


def counted(repository: pygit2.Repository, id: pygit2.Oid, counts: dict[pygit2.Oid, int] | None = None) -> Revision:
    """The revision of a commit where a ledger starts: its number counts its first parents.
    ``counts``: a cache of such numbers, which is extended; branches share their history.
    """
    counts = {} if counts is None else counts
    chain = list(takewhile(lambda one: one not in counts, first_parents(repository, id)))
    before = first_parent(repository, chain[-1]) if chain else None
    number = counts.get(before, 0) if before else 0
    counts.update((one, number + place) for place, one in enumerate(reversed(chain), start=1))
    return revision_of(repository, id, counts[id])


def first_parents(repository: pygit2.Repository, start: pygit2.Oid) -> Iterator[pygit2.Oid]:
    id: pygit2.Oid | None = start
    while id is not None:
        yield id
        parent = first_parent(repository, id)
        # The end of a shallow clone names a parent that it does not have.
        id = parent if parent is not None and has_object(repository, parent) else None


@dataclass(frozen=True, slots=True)
class Chain:
    """The first-parent commits that are new, the newest first, and the commit before the oldest of
    them.
    """

    new: tuple[pygit2.Oid, ...]
    before: pygit2.Oid | None


def _dropped(repository: pygit2.Repository, old: pygit2.Oid, new: pygit2.Oid) -> tuple[str, ...]:
    """The commits that were on the branch at ``old`` and are not at ``new``, newest first. All
    parents are followed, because the former head may have become a second parent (``git pull``).
    """
    found: dict[pygit2.Oid, None] = {}
    starts = deque([old])
    for _ in range(MOST_MERGES + 1):
        if not starts:
            break
        for id in new_to(repository, starts.popleft(), [new]).new:
            if id in found:
                break  # everything behind it is known, too
            found[id] = None
            starts += [parent for parent in parents(repository, id)[1:] if has_object(repository, parent)]
    return tuple(map(str, found))


def new_to(repository: pygit2.Repository, start: pygit2.Oid, known: Sequence[pygit2.Oid]) -> Chain:
    """The part of ``start``'s first-parent chain that none of ``known`` contains (see the top of this file)."""

    def is_known(id: pygit2.Oid) -> bool:
        return any(id == head or contains(repository, head, id) for head in known)

    source = first_parents(repository, start)
    chain: list[pygit2.Oid] = []
    new, step = 0, 1  # chain[:new] is new
    while True:
        chain.extend(islice(source, step))
        if len(chain) == new:
            return Chain(tuple(chain), None)
        if is_known(chain[-1]):
            first_known = _first(new, len(chain) - 1, lambda at: is_known(chain[at]))
            return Chain(tuple(chain[:first_known]), chain[first_known])
        new, step = len(chain), step * 2


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least number from low to high for which ``holds`` is true; it is true for high, and for
    all after the first.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _appended(
    repository: pygit2.Repository,
    newest_first: Sequence[pygit2.Oid],
    number: int,
    limit: int,
    *,
    dropped: tuple[str, ...] = (),
    baseline: Revision | None = None,
) -> Advance:
    ids = newest_first[::-1]
    revisions = tuple(revision_of(repository, id, number + place) for place, id in enumerate(ids[:limit], start=1))
    return Advance(dropped, revisions, complete=len(ids) <= limit, baseline=baseline)


def revision_of(repository: pygit2.Repository, id: pygit2.Oid, number: int) -> Revision:
    commit = read_commit(repository, id)
    assert commit is not None, "a first-parent chain holds commits only"
    name, address = (_text(part, commit.encoding) for part in commit.author)
    message = _text(commit.message, commit.encoding)
    revision = Revision(
        id=str(id),
        number=number,
        author=f"{name} <{address}>" if address else name,
        date=_date(commit.time),
        message=message,
        origin=origin_of_message(message),
        parent=str(commit.parents[0]) if commit.parents else "",
    )
    if commit.size > LONGEST_COMMIT:
        fault = f"its commit has {commit.size:,} bytes, more than {LONGEST_COMMIT:,}; make its message shorter"
        return replace(bounded(revision), oversized=fault)
    return bounded(revision)


def _text(raw: bytes, encoding: str) -> str:
    """Decode a text. The committer names the encoding, which may be unknown, not for texts, or
    produce lone surrogates.
    """
    try:
        name = codecs.lookup(encoding).name
        text = raw.decode(name if _ENCODINGS.fullmatch(name) else "utf-8", errors="replace")
    except (LookupError, ValueError):
        text = raw.decode(errors="replace")
    return text.encode(errors="replace").decode()


def _date(seconds: int) -> datetime:
    """The date of a commit. Any time may be claimed; one that the calendar lacks becomes its
    nearest end.
    """
    try:
        return within_calendar(datetime.fromtimestamp(seconds, UTC))
    except (OverflowError, ValueError, OSError):
        return within_calendar((datetime.max if seconds > 0 else datetime.min).replace(tzinfo=UTC))
