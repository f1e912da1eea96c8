"""Marks commits that tasks make (design 5.15), and reads these marks.

Git: the trailer ``Arkqueue-Origin: TASK; generation=N``, which hooks of the working copy add to
each commit message. Subversion: the revision property ``arkqueue:origin`` with the same value.
Neither the client's configuration nor a working copy can set a revision property. So a working copy
comes with a small ``svn`` and ``svnmucc``, which are first on the task's PATH: they add
``--with-revprop`` to commands that commit, and run the real program. If a task bypasses them, only
the configured author shows that a task has committed.

The task's home is that of the user who runs it. So its ``svn`` reads Subversion's files there
(servers, passwords) and writes nothing: a remembered author would become the author of that
person's next commit.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from arkqueue.errors import Invalid
from arkqueue.model import ArchiveKind, Origin

AUTHORS = {ArchiveKind.GIT: "arkqueue <arkqueue@localhost>", ArchiveKind.SUBVERSION: "arkqueue"}
"""The author of commits by tasks, if the archive's settings name none."""
TRAILER = "Arkqueue-Origin"
PROPERTY = "arkqueue:origin"

_VALUE = re.compile(r"(?P<task>\S(?:.*\S)?); generation=(?P<generation>\d{1,9})")
_AUTHOR = re.compile(r"(?P<name>[^<>]*)<(?P<email>[^<>\s]+)>")
# These patterns read text of committers, and all threads wait meanwhile: so no pattern may
# backtrack.
_TRAILER_LINE = re.compile(rf"^{TRAILER}:(.*)$", re.MULTILINE)


def format_origin(origin: Origin) -> str:
    """The origin as one line."""
    return f"{' '.join(origin.task.split())}; generation={origin.generation}"


def parse_origin(value: str) -> Origin | None:
    found = _VALUE.fullmatch(value.strip())
    return Origin(found["task"], int(found["generation"])) if found else None


def origin_of_message(message: str) -> Origin | None:
    """The origin in a commit message. The last trailer counts: earlier ones may be quoted from
    other commits.
    """
    lines = [line for line in _TRAILER_LINE.findall(message) if line.strip()]
    return parse_origin(lines[-1]) if lines else None


def check_author(kind: ArchiveKind, author: str) -> None:
    """Raise `Invalid` for a text that cannot be the author of a commit. Git: "Name <email>";
    Subversion: any one line.
    """
    if kind is ArchiveKind.GIT:
        split_author(author)
    elif not author.strip() or not author.isprintable():
        raise Invalid(f"author {author!r}", "is not a name of one line", "Write it as: name")


def split_author(author: str) -> tuple[str, str]:
    """The name and address of "Name <email>". git removes some characters from the ends of a name,
    and refuses a name that is then empty.
    """
    found = _AUTHOR.fullmatch(author.strip())
    if not found or not author.isprintable() or not found["name"].strip(" .,:;\"\\'"):
        raise Invalid(f"author {author!r}", "is not a valid author of Git commits", "Write it as: Name <email>")
    return found["name"].strip(), found["email"]


def install_git_hooks(hooks: Path, origin: Origin) -> None:
    """Install two hooks that both mark a commit, because ``--no-verify`` skips one, and an editor
    can remove what the other wrote.
    """
    script = _GIT_HOOK.replace("@TRAILER@", shlex.quote(f"{TRAILER}: {format_origin(origin)}"))
    hooks.mkdir(parents=True, exist_ok=True)
    for name in ("prepare-commit-msg", "commit-msg"):
        _write_program(hooks / name, script)


def install_subversion_commands(
    folder: Path, origin: Origin | None, username: str | None, settings: Path | None = None
) -> None:
    """Write the ``svn`` and ``svnmucc`` that mark commits and do not remember a user. ``username``:
    the author, if no server asks who commits.

    ``settings``: the folder of settings that they use; None: that of the user who runs the task.
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
# Marks commits that are made by an arkqueue task, so that a chain of
# them can be seen and ended; everything else goes to the real program of
# this name as it is, which only may not write to the home of its user.
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
