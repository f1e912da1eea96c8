"""The forms that pages send: their fields, and the options of a button."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError

from arkqueue.errors import Invalid
from arkqueue.web.problems import said

M = TypeVar("M", bound=BaseModel)
MOST_FIELDS: Final = 2000
"""The most fields of a form. The form of a trigger has one for each task."""


class Form:
    """A form that a page sent. Each field has one value, a text, except the fields that may come
    several times.
    """

    def __init__(self, body: bytes) -> None:
        try:
            self._all = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=MOST_FIELDS)
        except ValueError as error:
            fault = f"has more than {MOST_FIELDS:,} fields"
            raise Invalid("the form", fault, "Use the command line for that many.") from error
        self._fields = dict(self._all)

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, "").strip()

    def has(self, name: str) -> bool:
        """Whether the form has a field, empty or not."""
        return name in self._fields

    def all(self, name: str) -> list[str]:
        """The values of a field that may come several times."""
        return [value.strip() for field, value in self._all if field == name and value.strip()]

    def fields(self, *but: str) -> list[tuple[str, str]]:
        """All non-empty fields in the order of the form, without the named ones."""
        return [(name, value) for name, value in self._all if name not in but and value.strip()]


@dataclass(frozen=True, slots=True)
class Meant:
    """The options of a button, besides its verb. ``text``: a reason, a note or a number. ``task``:
    the task from which a run starts again, or the list whose failed items are retried. ``state``:
    only items of a list in this state; empty: all items.

    The other fields are options of the command line. A page offers each of them after a refusal
    that names it.
    """

    text: str = ""
    task: str = ""
    state: str = ""
    force: bool = False
    from_start: bool = False
    skip_outdated: bool = False

    @property
    def is_forced(self) -> bool:
        """Whether a refusal is overruled."""
        return self.force or self.from_start or self.skip_outdated


def meant(form: Form) -> Meant:
    """The options of the button in a form."""
    options = {name: form[name] == "yes" for name in ("force", "from_start", "skip_outdated")}
    return Meant(form["text"], form["task"], form["state"], **options)


def number(thing: str, text: str) -> int:
    """A number that a form has."""
    if not text.isdecimal() or len(text) > 18:
        raise Invalid(thing, f"is not a number: {text!r}", "Write digits.")
    return int(text)


def valid(model: type[M], **given: Any) -> M:
    """A request of the API from the fields of a form. Raises `Invalid` with the faults."""
    try:
        return model(**given)
    except ValidationError as error:
        # As the fields are called on the page.
        faults = [
            f"{'.'.join(map(str, fault['loc'])).replace('_', '-')}: {said(fault)}" for fault in error.errors()[:5]
        ]
        raise Invalid("the form", "; ".join(faults).removeprefix(": "), "Correct it, and send it again.") from error
