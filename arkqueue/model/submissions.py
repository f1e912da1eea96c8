"""Submissions, for which runs are made: their payloads and their attachments."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PayloadKind(StrEnum):
    """The format of a submission's payload."""

    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    LINES = "lines"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that is submitted beside a payload. ``name``: its path among the others. ``size``: its
    bytes. ``digest``: its SHA-256, in hexadecimal digits.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Attached:
    """The attachments of a run. ``folder``: the number of their folder. ``is_removed``: they were
    removed.
    """

    folder: int
    is_removed: bool


@dataclass(frozen=True, slots=True)
class Handed:
    """The submission for which a task's run was made, without its payload. ``sender_id``: the
    sender's id of it; None: the sender gave none. ``attached``: None if it has no attachments.
    """

    kind: PayloadKind
    sender_id: str | None
    attached: Attached | None = None


LONGEST_PAYLOAD = 64 * 2**20
"""The most bytes of a submission's payload."""
MOST_ATTACHMENTS = 10_000
"""The most files that a submission has beside its payload."""
LONGEST_SENDER_ID = 200
"""The most characters of a sender's id of a submission."""
