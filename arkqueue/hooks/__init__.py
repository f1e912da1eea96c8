"""Hooks: scripts in a repository that notify arkqueue of commits at once, and that refuse faulty
workflow files (design 2, 8).

`install` and `uninstall` write and remove the scripts, whose templates are in the project's folder
``hooks/``. They run on the host of the repository. The checking scripts call `check_transaction`
and `check_push`. All of these are called by ``arkqueue hook …``. This package talks to no server,
and a commit that changes no workflow file runs no Python.
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
