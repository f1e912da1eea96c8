"""Commit a table of contents back to the archive, where it changed: a revision like any other, whose run has no such task, as it changes no document.

It describes the newest revision, whichever one it runs for. So where somebody else commits at the same moment, it begins again with what they have committed.
"""

from __future__ import annotations

import html
import os
import subprocess
import sys
from pathlib import Path

import documents

FILE = Path("CONTENTS.md")
MESSAGE = "Bring the table of contents up to date"
TRIES = 10


def run(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=check, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)


def contents() -> str:
    lines = [
        f"- {html.escape(shown(found.title), quote=False)} (`{shown(found.path.decode('utf-8', 'replace'))}`)"
        for found in documents.everything()
    ]
    return "\n".join(["# Contents", "", *lines, ""])


def shown(text: str) -> str:
    """A committer's text in one line of the table: without line breaks and other control characters."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


class Subversion:
    def newest(self) -> None:
        run("svn", "revert", "--quiet", "--recursive", ".")
        FILE.unlink(missing_ok=True)
        run("svn", "update", "--quiet", "--non-interactive")

    def commit(self) -> bool:
        run("svn", "add", "--quiet", "--force", str(FILE))
        return (
            run("svn", "commit", "--quiet", "--non-interactive", "-m", MESSAGE, str(FILE), check=False).returncode == 0
        )


class Git:
    def newest(self) -> None:
        run("git", "fetch", "--quiet", "origin", os.environ["ARKQUEUE_BRANCH"])
        run("git", "reset", "--quiet", "--hard", "FETCH_HEAD")

    def commit(self) -> bool:
        run("git", "add", str(FILE))
        run("git", "commit", "--quiet", "-m", MESSAGE)
        pushed = run("git", "push", "--quiet", "origin", f"HEAD:{os.environ['ARKQUEUE_BRANCH']}", check=False)
        return pushed.returncode == 0


def main() -> None:
    repository = Git() if Path(".git").exists() else Subversion()
    for _ in range(TRIES):
        repository.newest()
        now = contents()
        if FILE.exists() and FILE.read_text("utf-8") == now:
            print(f"{FILE} is up to date")
            return
        FILE.write_text(now, "utf-8")
        if repository.commit():
            print(f"{FILE} is committed")
            return
    sys.exit(f"{FILE} could not be committed in {TRIES} tries")


if __name__ == "__main__":
    main()
