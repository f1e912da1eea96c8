"""Hooks: how a repository tells arkqueue of commits at once, and refuses faulty workflow files (design 2, 8).

`install` and `uninstall` write and remove the scripts that stand in the project's ``hooks/``, on the host of the repository; `check_transaction` and `check_push`
are what the checking ones ask. Called by ``arkqueue hook …``. Nothing here talks to a server, and no Python runs on the way of a commit that changes no workflow file.
"""

from arkqueue.hooks.checks import FAULTY, check_push, check_transaction, lines_of, refusal
from arkqueue.hooks.installation import Installed, Removed, ending, install, told, uninstall
from arkqueue.hooks.place import folder_of

__all__ = [
    "FAULTY",
    "Installed",
    "Removed",
    "check_push",
    "check_transaction",
    "ending",
    "folder_of",
    "install",
    "lines_of",
    "refusal",
    "told",
    "uninstall",
]
