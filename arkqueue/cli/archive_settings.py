"""``archive set``, and the options for settings that it shares with ``archive add``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from arkqueue.archive_settings import USUAL_TIER
from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import at, bold, print_json, say
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

UNSET = {
    "tier": str(USUAL_TIER),
    "max_running": "no limit",
    "keep": "everything for ever",
    "keep_logs": "for ever",
    "images": "every one",
    "users": "every one",
    "networks": "bridge, none",
    "branches": "the main one",
    "notify": "nobody",
}
"""The words for settings that are unset. Other unset settings are not shown."""


def settings_options(command: Any) -> Any:
    """The options that ``add`` and ``set`` share."""
    for option in reversed(
        [
            click.option("--branch", "branches", multiple=True, metavar="GLOB", help="Git: a branch to track, or a glob of them (** for all); may be repeated."),
            click.option("--executor", type=click.Choice(["process", "none"]), help="process: its tasks run as processes of a task manager's host."),
            click.option("--process-user", metavar="USER", help="The operating system's user that its processes run as."),
            click.option("--author", metavar="NAME", help="Who commits for its tasks; of a Git archive: \"Name <email>\"."),
            click.option("--task-url", metavar="URL", help="Where its tasks' working copies commit to."),
            click.option("--follow", "follow", multiple=True, metavar="URL-PREFIX", help="What its working copies fetch beside the archive: externals, submodules and Git LFS files whose URL begins so; may be repeated. Else: none."),
            click.option("--image", metavar="IMAGE", help="The container image of its tasks that name none."),
            click.option("--allow-image", "images", multiple=True, metavar="GLOB", help="An image that its tasks may name, or a glob of them; may be repeated. Else: every image."),
            click.option("--allow-user", "users", multiple=True, metavar="GLOB", help="A user (or user:group) that they may be in a container; may be repeated. Else: every one."),
            click.option("--tier", metavar="N", help="Archives of a lower tier go first, those of one take turns; 0 to 100. Else: 5."),
            click.option("--max-running", metavar="N", help="How many of its attempts run at once, on all task managers. Else, and with none: no limit."),
            click.option("--allow-network", "networks", multiple=True, metavar="GLOB", help="A network that they may name; may be repeated. Else: bridge and none."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(
    "set",
    epilog="Examples: arkqueue archive set papers --executor process; arkqueue archive set papers tier 3; "
    "arkqueue archive set papers follow https://git.example.org/group/",
)
@click.argument("name")
@click.argument(
    "words",
    nargs=-1,
    metavar="[tier N | max-running N | keep STATE=AGE... | keep-logs AGE | follow URL-PREFIX... | require-approval GLOB... | workflow-authors GLOB... | notify RECEIVER [OCCASION...] [branch=GLOB...]...]",
)
@click.option("--not-author/--any-author", default=None, help="With require-approval: authors cannot, or can, approve their own revisions. Without either, this stays as it is.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="With keep or keep-logs: change nothing, and only say what would go now.")
@settings_options
@as_json
@calls_server
def set_(
    client: Client,
    name: str,
    words: tuple[str, ...],
    not_author: bool | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Change the settings of an archive. Settings that are not given stay, and an empty text
    removes a setting.

    "follow URL-PREFIX...", "tier N" and "max-running N" do the same as the options --follow, --tier
    and --max-running. Names may have underscores.

    "require-approval GLOB..." holds every task whose name matches, whatever the workflow file says,
    until somebody with a token of scope approve releases it. "workflow-authors GLOB..." holds the
    runs of workflow files that somebody else has changed. An empty text ends either.

    "keep completed=30d failed=400d" purges runs that have been in these states for that long, and
    keeps all others; "keep-logs 90d" removes only logs. An empty text keeps everything. Both also
    apply to a removed archive, and can be changed there.

    "notify ann@example.org failed fixed https://hooks.example.org/ci" notifies receivers by mail
    and by webhook of runs that are failed, fixed, held or completed, and of a stopped archive;
    without these words, of all except completed. "author" is the author of a run's commit.
    "branch=GLOB" limits a receiver to runs on these branches. The command replaces all receivers;
    an empty text removes them.
    """
    from arkqueue.cli.client import archive_path

    body = given_settings(options) | _settings_in(words, options, not_author=not_author)
    if not body:
        raise click.UsageError("Give at least one option of what to change.")
    if dry_run and not body.keys() <= {"keep", "keep_logs"}:
        raise click.UsageError("--dry-run goes with keep and with keep-logs, and with no other setting.")
    changed = client.send("PATCH", archive_path(name), body, dry_run="true" if dry_run else None)
    if as_json:
        print_json(changed)
    elif dry_run:
        _tell_what_goes(name, changed["goes"])
    else:
        settings = changed["settings"]
        now = {key: as_text(settings[key]) or UNSET.get(key, "none") for key in body}
        say(f"{bold(name)}: {', '.join(f'{key} {value}' for key, value in now.items())}")
        if body.keys() & {"process", "process_user", "image"}:
            tell_what_it_grants(changed)
        if any(settings[key] for key in body.keys() & {"keep", "keep_logs"}):
            say(f"A queue manager purges what is older within the hour. To do it now: arkqueue purge {name}")


def _tell_what_goes(name: str, goes: Any) -> None:
    """Print the result of a dry run of ages: the number of runs and logs that would be removed, and
    the first and the last of these runs.
    """
    runs, kept, more = len(goes["runs"]), len(goes["kept"]), "" if goes["is_whole"] else "at least "
    say("Nothing is changed. With these rules:")
    logs = f", and the logs of {more}{goes['logs']} attempts" if goes["logs"] else ""
    say(f"{bold(visible(name))}: {more}{runs} run{'' if runs == 1 else 's'} would go now{logs}")
    for which in ("oldest", "newest"):
        if run := goes[which]:
            say(f"  the {which}: {visible(run['run'])}, made {at(run['created_at'])}")
    if kept:
        say(
            f"{kept} more {'is' if kept == 1 else 'are'} old enough and kept, as something depends on them: arkqueue purge says what"
        )


def tell_what_it_grants(archive: Any) -> None:
    """Print how an archive's tasks run, and plainly what its right to run processes means, as
    ``serve`` does on the host where they run.
    """
    settings = archive["settings"]
    say(f"note: its tasks run {ways(settings)}")
    if settings["process"] and not settings["image"]:
        user = visible(settings["process_user"] or "the task manager's own user")
        where = visible(archive["url"])
        say(f"note: every committer of {where} can do on the task manager's host everything that {user} may do")
    if settings["process_user"] and not _is_user_here(settings["process_user"]):
        say(
            f"note: this host has no user {visible(settings['process_user'])}; a host without that user starts none of its processes"
        )


def _is_user_here(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def ways(settings: Any) -> str:
    """How an archive's tasks run: in containers or as processes."""
    if settings["image"]:
        return f"in containers, of {visible(settings['image'])} where they name no image"
    if settings["process"]:
        user = visible(settings["process_user"] or "the task manager's own user")
        return f"in containers where they name an image, else as processes of {user}"
    return "in containers, of the image that they name, else of their task manager's if it has one; not as processes"


def _settings_in(words: Sequence[str], options: Mapping[str, Any], *, not_author: bool | None) -> dict[str, Any]:
    """The settings in the words behind the name of an archive. ``options``: those of the command,
    which may not set the same.
    """
    key, values = (words[0].replace("-", "_"), words[1:]) if words else ("", ())
    if key in ("require_approval", "workflow_authors") and len(values) > 1 and "" in values:
        raise click.UsageError(
            f"An empty text ends {key.replace('_', '-')}, and stands alone. Leave it out beside globs."
        )
    if key == "require_approval" and values:
        if not any(values):
            if not_author is not None:
                raise click.UsageError(
                    "--not-author goes with the globs of tasks, and an empty text ends require-approval."
                )
            return {key: [], "approval_not_author": False}
        whose = {} if not_author is None else {"approval_not_author": not_author}
        return {key: [glob for glob in values if glob], **whose}
    if not_author is not None:
        raise click.UsageError('--not-author goes with "require-approval" and the globs of tasks.')
    if key == "workflow_authors" and values:
        return {key: [glob for glob in values if glob]}
    if key == "keep" and values:
        keep = [_kept(value) for value in values if value]
        if len(dict(keep)) < len(keep):
            raise click.UsageError("Name each state once after keep.")
        return {key: dict(keep)}
    if key == "keep_logs" and len(values) == 1:
        return {key: values[0] or None}
    if key == "notify" and values:
        return {key: _receivers(values)}
    if key == "follow" and values and not options[key]:
        return {key: [prefix for prefix in values if prefix]}
    if key in ("tier", "max_running") and len(values) == 1 and not options[key]:
        return {key: _number(key, values[0])}
    if words:
        raise click.UsageError(
            'After NAME come options, or "tier N", or "max-running N", or "keep" and STATE=AGE, or "keep-logs AGE", or "follow" and the URL prefixes that are followed, or "require-approval" or "workflow-authors" and globs, or "notify" and receivers.'
        )
    return {}


def given_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The given settings. An empty text removes a setting."""
    body = {
        key: options[key] or None for key in ("process_user", "author", "task_url", "image") if options[key] is not None
    }
    if options["executor"] is not None:
        body["process"] = options["executor"] == "process"
    for key in ("tier", "max_running"):
        if options[key] is not None:
            body[key] = _number(key, options[key])
    for key in ("branches", "follow", "images", "users", "networks"):
        if options[key]:
            body[key] = [glob for glob in options[key] if glob]
    return body


def _kept(text: str) -> tuple[str, str]:
    """The state and the age in a word such as ``completed=30d``."""
    state, equals, age = text.partition("=")
    if not (state and equals and age):
        raise click.UsageError(f"Write STATE=AGE after keep, for example completed=30d, not {text!r}.")
    return state, age


def _receivers(words: Sequence[str]) -> dict[str, list[str]]:
    """Receivers with their occasions, from words such as
    ``https://hooks.example.org/ci failed fixed``. A word that contains ``://`` or ``@``, or is
    ``author``, begins a new receiver.
    """
    from arkqueue.model import AUTHOR, OF_BRANCH

    found: dict[str, list[str]] = {}
    receiver = ""
    for word in filter(None, words):
        if not word.startswith(OF_BRANCH) and ("://" in word or "@" in word or word == AUTHOR):
            receiver = word
            if receiver in found:
                raise click.UsageError(f"Name each receiver once: {receiver!r}.")
            found[receiver] = []
        elif not receiver:
            raise click.UsageError(f"Write a receiver before {word!r}: https://hooks.example.org/ci {word}.")
        else:
            found[receiver].append(word)
    return found


def _number(key: str, text: str) -> int | None:
    if text in ("", "none"):
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise click.UsageError(f"{key} is a whole number, or none: not {text!r}.")
    return int(text)


def as_text(value: Any) -> str:
    """A setting as text; empty if it is not set."""
    if isinstance(value, dict):
        receivers = {key: one if isinstance(one, str) else ",".join(one) for key, one in value.items()}
        return visible(" ".join(f"{key}={one}" for key, one in sorted(receivers.items())))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return visible(", ".join(map(str, value)))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return {True: "yes", False: "no"}.get(value) or visible(str(value or ""))
