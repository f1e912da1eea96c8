"""Names of users, where they have one and where not."""

from __future__ import annotations

import os
import pwd

from arkqueue.runtime.accounts import account


def test_users_are_called_by_their_names() -> None:
    assert account(0) == pwd.getpwuid(0).pw_name
    assert account() == pwd.getpwuid(os.geteuid()).pw_name


def test_a_user_without_a_name_is_called_by_its_number() -> None:
    """As in a container that runs as any number."""
    assert account(4_123_456_789) == "4123456789"
