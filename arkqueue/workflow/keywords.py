"""The keywords of JSON Schema that the library `jsonschema` checks slowly or inexactly, and how
arkqueue checks them. Pure.

- ``uniqueItems``: the library compares each pair of items that have no order, such as objects. A
  list of 10,000 objects would take minutes.
- ``multipleOf``: the library divides binary fractions. So 0.07 would be no multiple of 0.01.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from fractions import Fraction
from math import isfinite
from typing import Any, Final

from jsonschema import ValidationError, validators

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError]]
_BOOLEANS: Final = {True: object(), False: object()}
"""For Python, true is 1."""


def validator_for(schema: Any) -> Any:
    """The class of validators of a schema's dialect, with these keywords."""
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    ours: dict[str, Keyword] = {"uniqueItems": _unique_items, "multipleOf": _multiple_of, "divisibleBy": _multiple_of}
    return validators.extend(kind, {word: check for word, check in ours.items() if word in kind.VALIDATORS})


def _unique_items(validator: Any, wanted: Any, value: Any, _: Any) -> Iterator[ValidationError]:
    if not wanted or not validator.is_type(value, "array"):
        return
    seen: dict[Hashable, int] = {}
    for place, item in enumerate(value):
        first = seen.setdefault(_identity(item), place)
        if first != place:
            yield ValidationError(f"[{first}] and [{place}] are equal, and the list may have no item twice")
            return


def _identity(value: Any) -> Hashable:
    """Two values have equal identities if they are equal for JSON Schema: 1 and 1.0 are, true and 1
    are not, and the order of fields does not count.
    """
    if isinstance(value, bool):
        return _BOOLEANS[value]
    if isinstance(value, list):
        return tuple(map(_identity, value))
    if isinstance(value, dict):
        return frozenset((word, _identity(one)) for word, one in value.items())
    found: Hashable = value
    return found


def _multiple_of(validator: Any, step: Any, value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "number") and not _is_multiple(value, step):
        yield ValidationError(f"{value!r} is not a multiple of {step}")


def _is_multiple(value: float, step: float) -> bool:
    """Whether a number as it is written in decimals is a multiple of another one."""
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    if isinstance(value, float) and not isfinite(value):
        return False
    return (_exact(value) / _exact(step)).denominator == 1


def _exact(number: float) -> Fraction:
    """The shortest decimal fraction that stands for a binary one: the one that was written."""
    return Fraction(number if isinstance(number, int) else repr(number))
