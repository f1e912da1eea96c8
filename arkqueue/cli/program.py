"""The command ``arkqueue``: its subcommands by name, and the only place where errors become exit
codes.
"""

from __future__ import annotations

import errno
import gc
import importlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from arkqueue import __version__
from arkqueue.errors import ArkqueueError

COMMANDS = {
    "serve": ("serve", "Run every role in one process."),
    "manager": ("serve", "Run a queue manager."),
    "worker": ("serve", "Run a task manager."),
    "web": ("serve", "Run the API and the pages."),
    "demo": ("demo", "Run an example on a new archive, and show what happens."),
    "archive": ("archive", "Register archives and look after them."),
    "hook": ("hook", "Install hooks into repositories."),
    "notify": ("scans", "Send a notice that a repository has a new revision."),
    "sync": ("scans", "Scan an archive's repository now."),
    "check": ("check", "Find the faults of workflow files."),
    "trigger": ("trigger", "Run tasks of a revision by hand."),
    "submit": ("submit", "Submit a document, and run the tasks that are for submissions."),
    "status": ("status", "Show what needs a person, and what is wrong."),
    "runs": ("runs", "List runs."),
    "show": ("show", "Show a run or a task."),
    "watch": ("watch", "Watch runs as they go."),
    "logs": ("logs", "Print the log of a task."),
    "graph": ("runs", "Draw the graph of a run."),
    "explain": ("show", "Say why a task is not running."),
    "report": ("report", "Show the report of a run, or make a further one."),
    "cancel": ("verbs", "Cancel a task or a run."),
    "restart": ("verbs", "Stop a running task and start it again."),
    "retry": ("verbs", "Run a failed task again."),
    "refresh": ("verbs", "Poll deferred tasks now."),
    "skip": ("verbs", "Let tasks go on that wait for this task."),
    "pause": ("pauses", "Pause an archive, a lock or the whole installation."),
    "resume": ("pauses", "End a pause."),
    "workers": ("status", "List the task managers: where tasks run."),
    "drain": ("pauses", "Stop a task manager from claiming tasks."),
    "lock": ("lock", "Show and set the locks that tasks name."),
    "delivery": ("delivery", "Show notifications and send them again."),
    "hold": ("holds", "Hold an archive, a run or a task until somebody releases it."),
    "unhold": ("holds", "End the hold of an archive."),
    "release": ("holds", "Release held work."),
    "prioritize": ("verbs", "Set the priority of tasks inside their archive."),
    "note": ("verbs", "Keep a note with a task or a run."),
    "delete": ("verbs", "Delete a run or an item; its history stays."),
    "undelete": ("verbs", "Bring a deleted run or item back."),
    "purge": ("purge", "Remove runs, or the log or the outputs of a task, for good."),
    "doctor": ("doctor", "Check the database for rows that break a rule."),
    "token": ("token", "Make and revoke tokens."),
    "sign-in": ("token", "Print a link that signs a browser in."),
    "backup": ("database", "Write the database to a file."),
    "restore": ("database", "Fill an empty database from a backup."),
    "migrate": ("database", "Migrate the database to this version."),
}
"""Each command with its module and its sentence, in the order in which a newcomer needs them."""

REMEDIES = {
    errno.EACCES: "Correct its permissions, or run this as the user that it belongs to.",
    errno.EPERM: "Correct its permissions, or run this as the user that it belongs to.",
    errno.ENOSPC: "Make room there.",
    errno.EDQUOT: "Make room there.",
    errno.EROFS: "Make its file system writable, or name another place.",
    errno.ENOENT: "Make it, or name another.",
    errno.ENOTDIR: "Remove what stands in its place, or name another.",
    errno.EEXIST: "Remove what stands in its place, or name another.",
    errno.EISDIR: "Remove what stands in its place, or name another.",
    errno.EMFILE: "Let this user open more files.",
}
"""The remedies for errors of the system, by their reasons."""


@contextmanager
def beginning() -> Iterator[None]:
    """Inside the block, the garbage collector does not run. If the block imports modules, the collector
    never examines the objects that exist at its end. The objects of modules stay, and examining them
    again and again takes a tenth of a start.
    """
    was_on, imported = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if len(sys.modules) > imported:
                gc.freeze()
            gc.enable()


class Commands(click.Group):
    """The group that imports a command's module only when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        with beginning():
            module = importlib.import_module(f"arkqueue.cli.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, name.replace("-", "_"))
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        from difflib import get_close_matches

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, 1, cutoff=0.7)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise self._misplaced(ctx, error) or error from None
        except BrokenPipeError:
            # The reader of the output has closed it. Caught here, because click would report a
            # failure.
            _write_no_more()
            ctx.exit(0)

    def _misplaced(self, ctx: click.Context, error: click.NoSuchOption) -> click.UsageError | None:
        """The error for an option that a command does not have, because it belongs to the program."""
        for option in self.params:
            if option.metavar and error.option_name in option.opts and error.ctx is not None:
                command = error.ctx.command_path.removeprefix(ctx.command_path)
                written = f"{ctx.command_path} {error.option_name} {option.metavar}{command}"
                return click.UsageError(f"{error.option_name} belongs before the command: {written}", ctx)
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "-V", "--version", prog_name="arkqueue")
@click.option("--home", metavar="FOLDER", help="Where this host's arkqueue keeps what is its own (ARKQUEUE_HOME).")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="The configuration file (ARKQUEUE_CONFIG; default: arkqueue.toml in the home folder).",
)
@click.pass_context
def arkqueue(ctx: click.Context, home: str | None, config: str | None) -> None:
    """The queue that runs automations on versioned archives, in strict revision order.

    A task is named ARCHIVE@REVISION/TASK, for example papers@12/index; a run ARCHIVE@REVISION.
    """
    ctx.obj = {"home": home, "config": config}


def main() -> None:
    """Run the command line and exit."""
    # If the caller has closed them, nobody reads the output.
    sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))  # noqa: SIM115
    # Characters that the terminal's character set lacks are printed by their number.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = arkqueue.main(prog_name="arkqueue", standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except ArkqueueError as error:
        click.echo(f"arkqueue: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        click.echo(f"arkqueue: {_refusal(error)}", err=True)
        sys.exit(1)
    except UnicodeEncodeError as error:  # in an argument: names are sent to the server as UTF-8
        click.echo(
            f"arkqueue: {error.object!r}: has bytes that are not UTF-8. Write it in UTF-8, and a name as arkqueue shows it.",
            err=True,
        )
        sys.exit(click.UsageError.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


def _refusal(error: OSError) -> str:
    """The message for an error of the system: the file, the reason and the remedy."""
    from arkqueue.text import visible

    thing = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes, os.PathLike)) else ""
    remedy = REMEDIES.get(error.errno or 0, "") if thing or error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    if not thing and error.errno == errno.ENOENT:
        # Only the query of the working folder fails without a file name.
        thing, remedy = "the working folder", "Change to one that exists."
    if not thing:
        try:
            sys.stdout.flush()
        except OSError:
            # Writing has failed, and the end of the program would try again.
            _write_no_more()
            thing = "standard output"
    words = [thing, error.strerror or str(error) or type(error).__name__]
    return visible(": ".join(filter(None, words)) + (f". {remedy}" if remedy else ""))


def _write_no_more() -> None:
    """Discard the output that is still to be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
