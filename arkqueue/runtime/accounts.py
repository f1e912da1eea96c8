"""The names and rights of the operating system's users."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from arkqueue.errors import Invalid


def account(number: int | None = None) -> str:
    """The name of a user of this host (None: this process's user); its number if it has no name, as
    in many containers.
    """
    number = os.geteuid() if number is None else number
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


@contextmanager
def acting_as(owner: int) -> Iterator[None]:
    """If this process is root: run the ``with`` block with the rights of another user of this host.
    Other users keep their own rights.

    This affects the whole process. Raises `Invalid` if root may not change its user, as in some
    containers. The real user stays root, so that the other user can neither stop this process nor
    trace it.
    """
    if os.geteuid() != 0 or owner == 0:
        yield
        return
    try:
        user = pwd.getpwuid(owner)
        group, groups = user.pw_gid, os.getgrouplist(user.pw_name, user.pw_gid)
    except KeyError:  # a number without an account, as in many containers
        group, groups = owner, []
    before = os.getegid(), os.getgroups()
    with ExitStack() as back:
        try:
            os.setgroups(groups)
            back.callback(os.setgroups, before[1])
            os.setegid(group)
            back.callback(os.setegid, before[0])
            os.seteuid(owner)
            back.callback(os.seteuid, 0)
        except OSError as error:
            fault = f"root may not act as this user here ({error.strerror})"
            raise Invalid(f"user {account(owner)}", fault, "Run the command as that user.") from error
        yield
