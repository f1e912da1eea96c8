"""The operating system's users, as people call them."""

from __future__ import annotations

import os
import pwd


def account(number: int | None = None) -> str:
    """The name of a user of this host (None: of our own); its number where it has no name, as in many containers."""
    number = os.geteuid() if number is None else number
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
