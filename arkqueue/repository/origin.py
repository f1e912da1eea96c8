"""How a commit made by a task says so (design 5.15), and how that is read back.

Git: the trailer ``Arkqueue-Origin: TASK; generation=N``, which hooks of the working copy add to each commit message.
Subversion: the revision property ``arkqueue:origin`` with the same value. Neither the client's configuration nor a
working copy can order a revision property, so that a working copy brings a small ``svn`` and ``svnmucc`` along, to be
put first on the task's PATH, which add ``--with-revprop`` to what commits and leave all else to the real program. A
task that goes around them leaves only the configured author behind.

The task's home is that of the person who runs it. So its ``svn`` reads what Subversion keeps there (servers, passwords)
and writes nothing: a remembered author would be the author of that person's next commit.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from arkqueue.errors import Invalid
from arkqueue.model import ArchiveKind, Origin

AUTHORS = {ArchiveKind.GIT: "arkqueue <arkqueue@localhost>", ArchiveKind.SUBVERSION: "arkqueue"}
"""Who commits for a task where the archive's settings name nobody."""
TRAILER = "Arkqueue-Origin"
PROPERTY = "arkqueue:origin"

_VALUE = re.compile(r"(?P<task>\S(?:.*\S)?); generation=(?P<generation>\d{1,9})")
_AUTHOR = re.compile(r"\s*(?P<name>[^<>]*?)\s*<(?P<email>[^<>\s]+)>\s*")
# Committers write the text that these patterns read, and all threads wait meanwhile: no pattern may backtrack.
_TRAILER_LINE = re.compile(rf"^{TRAILER}:(.*)$", re.MULTILINE)


def format_origin(origin: Origin) -> str:
    """One line for any task key."""
    return f"{' '.join(origin.task.split())}; generation={origin.generation}"


def parse_origin(value: str) -> Origin | None:
    found = _VALUE.fullmatch(value.strip())
    return Origin(found["task"], int(found["generation"])) if found else None


def origin_of_message(message: str) -> Origin | None:
    """The last trailer counts: what an earlier commit's message quotes or brings along stands before it."""
    lines = [line for line in _TRAILER_LINE.findall(message) if line.strip()]
    return parse_origin(lines[-1]) if lines else None


def check_author(kind: ArchiveKind, author: str) -> None:
    """Raise `Invalid` for what cannot be the author of a commit: Git's is "Name <email>", Subversion's any one line."""
    if kind is ArchiveKind.GIT:
        split_author(author)
    elif not author.strip() or not author.isprintable():
        raise Invalid(f"author {author!r}", "is not a name of one line", "Write it as: name")


def split_author(author: str) -> tuple[str, str]:
    """Name and address of "Name <email>". git drops some characters at the ends of a name, and
    refuses a name that is then empty.
    """
    found = _AUTHOR.fullmatch(author)
    if not found or not author.isprintable() or not found["name"].strip(" .,:;\"\\'"):
        raise Invalid(f"author {author!r}", "is not a valid author of Git commits", "Write it as: Name <email>")
    return found["name"], found["email"]


def install_git_hooks(hooks: Path, origin: Origin) -> None:
    """Two hooks do the same, once: ``--no-verify`` skips one, and an editor can undo what the other wrote."""
    script = _GIT_HOOK.replace("@TRAILER@", shlex.quote(f"{TRAILER}: {format_origin(origin)}"))
    hooks.mkdir(parents=True, exist_ok=True)
    for name in ("prepare-commit-msg", "commit-msg"):
        _write_program(hooks / name, script)


def install_subversion_commands(
    folder: Path, origin: Origin | None, username: str | None, settings: Path | None = None
) -> None:
    """The ``svn`` and ``svnmucc`` that mark commits and remember nobody; ``username``: the author where no server asks who commits.

    ``settings``: the folder of settings that they use (None: that of the user who runs the task).
    """
    options = ["--username", username] if username else []
    if origin:
        options += ["--with-revprop", f"{PROPERTY}={format_origin(origin)}"]
    script = _SUBVERSION_COMMAND.replace("@OPTIONS@", shlex.join(options))
    script = script.replace("@SETTINGS@", shlex.quote(str(settings or "")))
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("svn", "svnmucc"):
        _write_program(folder / name, script)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


_GIT_HOOK = """\
#!/bin/sh
# Marks commits that are made by an arkqueue task, so that a chain of them can be seen and ended.
exec git interpret-trailers --in-place --if-exists replace --trailer @TRAILER@ "$1"
"""

_SUBVERSION_COMMAND = """\
#!/bin/sh
# Marks commits that are made by an arkqueue task, so that a chain of them can be seen and ended;
# everything else goes to the real program of this name as it is, which only may not write to the home of its user.
me=${0##*/}
here=${0%/*}
real=
old_ifs=$IFS
IFS=:
for folder in $PATH; do
    if [ "${folder:-.}" != "$here" ] && [ -x "${folder:-.}/$me" ]; then real=${folder:-.}/$me; break; fi
done
IFS=$old_ifs
if [ -z "$real" ]; then echo "$me: not found" >&2; exit 127; fi

marked=yes
command=
last=
skip=
for word in "$@"; do
    if [ -n "$skip" ]; then skip=; continue; fi
    case $word in
        -m|-F|-r|-c|-x|-U|-X|--message|--file|--username|--password|--config-dir|--config-option|--encoding|--depth|\\
        --targets|--changelist|--cl|--editor-cmd|--revision|--with-revprop|--extra-args|--root-url|-l|--limit|--accept|\\
        --set-depth|--native-eol|--diff-cmd|--diff3-cmd|--old|--new|--strip|--search|--search-and|--change|--extensions|\\
        --trust-server-cert-failures) skip=1 ;;
        -*) ;;
        *) command=${command:-$word}; last=$word ;;
    esac
done

# mkdir and the like commit only where they end at a URL, and take no revision property otherwise.
case $last in
    *://*|^/*) last=URL ;;
esac
case $me/$command/$last in
    svn/commit/*|svn/ci/*|svn/import/*|svnmucc/?*) ;;
    svn/mkdir/URL|svn/delete/URL|svn/del/URL|svn/remove/URL|svn/rm/URL) ;;
    svn/copy/URL|svn/cp/URL|svn/move/URL|svn/mv/URL|svn/rename/URL|svn/ren/URL) ;;
    *) marked= ;;
esac
if [ -n "$marked" ]; then set -- @OPTIONS@ "$@"; fi

settings=@SETTINGS@
# Where the user has no folder of settings, Subversion would make one.
if [ -n "$settings" ]; then set -- --config-dir "$settings" "$@";
elif [ -n "$HOME" ] && [ ! -d "$HOME/.subversion" ]; then set -- --config-dir "$here/config" "$@"; fi
exec "$real" --no-auth-cache "$@"
"""
