"""The sender's id of a submission, from its HTTP header (design 5.31)."""

from __future__ import annotations

from arkqueue.errors import Invalid
from arkqueue.model import LONGEST_SENDER_ID


def sender_id_of(given: str | None) -> str | None:
    """The id in the header ``Idempotency-Key``, which is UTF-8."""
    if given is None:
        return None
    try:
        text = given.encode("latin-1").decode()
    except UnicodeDecodeError:
        text = ""
    if not 1 <= len(text) <= LONGEST_SENDER_ID or not text.isprintable() or text != text.strip() or text in (".", ".."):
        fault = "is not a valid id: write 1 to 200 visible characters, without spaces at its ends, and not '.' or '..'"
        raise Invalid("Idempotency-Key", fault)
    return text
