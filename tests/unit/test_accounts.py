"""Names of users, where they have one and where not."""

from __future__ import annotations

import os
import pwd

import pytest

from arkqueue.errors import Invalid
from arkqueue.runtime.accounts import account, acting_as


def test_users_are_called_by_their_names() -> None:
    assert account(0) == pwd.getpwuid(0).pw_name
    assert account() == pwd.getpwuid(os.geteuid()).pw_name


def test_a_user_without_a_name_is_called_by_its_number() -> None:
    """As in a container that runs as any number."""
    assert account(4_123_456_789) == "4123456789"


@pytest.mark.parametrize("refused", ["setgroups", "setegid", "seteuid"])
def test_root_that_may_not_become_another_user_is_told_and_stays_itself(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """As in a container without the capabilities for it."""
    called: list[tuple[str, object]] = []
    for name in ("setgroups", "setegid", "seteuid"):
        monkeypatch.setattr(os, name, lambda value, name=name: called.append((name, value)))

    def refuse(_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, refused, refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        pytest.raises(Invalid, match=r"root may not act as this user here \(Operation not permitted\)"),
        acting_as(4711),
    ):
        raise AssertionError("it went on")
    became = {"setgroups": [], "setegid": ["setgroups"], "seteuid": ["setgroups", "setegid"]}[refused]
    assert [name for name, _ in called] == [*became, *reversed(became)]
