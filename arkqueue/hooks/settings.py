"""The settings of a repository of this host, as Git itself finds them, because a repository's
settings may include any file.

An included file may be a FIFO or have no end, so Git gets a deadline and a limit of its memory.
Called by `place`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from arkqueue.errors import Invalid
from arkqueue.runtime.accounts import account
from arkqueue.runtime.output import LongOutput, run_limited

DEADLINE = 10.0
"""The seconds that Git may take for one answer."""
_MEMORY = 1 << 18
"""The most memory that Git may allocate, in KiB."""
_LONGEST = 4096
"""The most characters of a path."""


class Settings:
    """The settings of one repository, as Git finds them for the user as whom this process acts."""

    def __init__(self, thing: Path, folder: Path) -> None:
        """``thing``: the path that messages name. ``folder``: the Git folder; raises `Invalid` if
        it is not one.
        """
        self._thing, self._folder = thing, folder
        self.is_bare = self._said("rev-parse", "--is-bare-repository") == "true"

    def path(self, name: str) -> str | None:
        """A setting that is a path, where ``~`` stands for the user's home folder; None if it is
        not set.
        """
        return self._said("config", "--type=path", "--get", name)

    def _said(self, *command: str) -> str | None:
        # The folder is given, so Git neither searches for another one nor checks who owns it.
        git = shutil.which("git")
        if git is None:
            raise Invalid("git", "is not here", "Install git: it is asked where the repository has its hooks.")
        limited = ["sh", "-c", f'ulimit -d {_MEMORY} 2>/dev/null; exec "$@"', "git", git]
        others = os.geteuid() != os.getuid()
        try:
            done = run_limited(
                [*limited, f"--git-dir={self._folder}", *command],
                longest=2 * _LONGEST,
                timeout=DEADLINE,
                # Real and effective ids: the program cannot get root's rights back.
                user=os.geteuid() if others else None,
                group=os.getegid() if others else None,
                cwd="/",
                env=_environment(others),
            )
        except TimeoutError as error:
            raise self._unreadable(f"git did not answer within {DEADLINE:.0f} s") from error
        except LongOutput as error:
            raise self._unreadable("git has more than a path to say") from error
        if done.returncode == 1 and command[0] == "config":
            return None
        said = os.fsdecode(done.stdout).removesuffix("\n")
        if done.returncode or len(said) > _LONGEST:
            told = os.fsdecode(done.stderr).strip().splitlines()
            raise self._unreadable(f"git: {told[-1][:300]}" if told else "git failed, or has more than a path to say")
        return said

    def _unreadable(self, why: str) -> Invalid:
        return Invalid(
            str(self._thing),
            f"cannot be opened as a Git repository ({why})",
            "Check the path, and what the repository's `config` includes.",
        )


def _environment(others: bool) -> dict[str, str]:
    if not others:
        kept = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
        return {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in kept} | {
            "LC_ALL": "C"
        }
    home = os.path.expanduser(f"~{account()}")  # stays unexpanded if there is no such account
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": home if os.path.isabs(home) else "/nonexistent",
        "LC_ALL": "C",
    }
