"""Revisions, the changes between two of them, and the trees of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Origin:
    """The task that made a commit (design 5.15). ``generation``: the number of commits by tasks that
    led to this one, itself included.
    """

    task: str
    generation: int


@dataclass(frozen=True, slots=True)
class Revision:
    """One revision as the repository reports it. ``date`` has a time zone. ``number``: its number in
    the ledger (design 1).
    """

    id: str
    number: int
    author: str
    date: datetime
    message: str
    origin: Origin | None = None
    oversized: str = field(default="", compare=False)
    """The parts of it that were longer than the ledger takes, and were cut; empty: none. The ledger
    does not store this text, only the fault of its run.
    """
    paths_digest: str = field(default="", compare=False)
    """A digest of the paths that a Subversion revision changes, and of how it changes them. `archive
    accept` compares it. Empty: it is not known, or the revision is a Git commit, whose id covers the
    paths.
    """
    parent: str = field(default="", compare=False)
    """The id of a Git commit's first parent; empty: it has none, or it is not known, or the revision is
    one of Subversion, whose parent is the one before. The ledger does not store it.
    """


@dataclass(frozen=True, slots=True)
class Layer:
    """An overlay: writes go to ``upper``, and ``lower`` never changes. ``work`` is the kernel's own
    folder, on the disk of ``upper``.
    """

    lower: Path
    upper: Path
    work: Path


class ChangeStatus(StrEnum):
    """The change of a file between two revisions. A moved file is deleted at one path and added at
    another.
    """

    ADDED = "added"
    MODIFIED = "modified"
    """Its text, its mode, its kind or one of its own properties differs."""
    DELETED = "deleted"


class FileChange(NamedTuple):
    """A file that differs between two revisions. ``path``: from the archive's root; bytes that are
    not UTF-8 are surrogate escapes (PEP 383).
    """

    status: ChangeStatus
    path: str


@dataclass(frozen=True, slots=True)
class TreeChange:
    """The changes that an update made to a plain tree. ``made``: the new paths. ``grown``: the bytes
    by which the tree has grown.

    ``began``: the time by `STAMPS` just before the first change; None: nothing was changed.
    ``entered``: the folders in which something was changed, by the time at which each had last been
    changed before (`st_ctime_ns`); of folders with the same time, only one.
    """

    made: tuple[bytes, ...]
    grown: int
    began: int | None = None
    entered: Mapping[int, bytes] = field(default_factory=dict)


STAMPS = 5
"""CLOCK_REALTIME_COARSE, by which the kernel stamps files. It is a little behind CLOCK_REALTIME."""
