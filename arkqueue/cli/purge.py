"""``arkqueue purge``: removes for good. It works on the database itself, so it works while all
roles are down.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, database, dry_run
from arkqueue.cli.output import bold, print_json, say
from arkqueue.cli.verbs import MOST_LINES, is_archive
from arkqueue.names import EVERY_TASK, is_list
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.db.session import Session
    from arkqueue.queue.export import Export
    from arkqueue.queue.purge_batch import Gone, Kept


@click.command(
    epilog="Examples: arkqueue purge papers@12 papers@13 --export old.jsonl; arkqueue purge papers@12/upload --log --reason 'it printed a password'. "
    "Change the secret as well: everybody who could read the log may have it."
)
@click.argument("names", metavar="RUN... | ARCHIVE | TASK", nargs=-1, required=True)
@click.option("--log", "log", is_flag=True, help="Of a task: the logs of its attempts that have ended, and the messages with which they ended.")  # fmt: skip
@click.option("--outputs", is_flag=True, help="Of a task: their outputs, and the same messages.")
@click.option("--reason", metavar="TEXT", default="", help="The reason; required for a task's log or outputs. Everybody who may see the task or the run sees it, and the audit log keeps it: do not quote the secret.")  # fmt: skip
@click.option("--export", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Of runs: write them to a new file first, as JSON lines.")  # fmt: skip
@database
@dry_run
@as_json
@click.pass_context
def purge(
    ctx: click.Context,
    /,
    names: Sequence[str],
    log: bool,
    outputs: bool,
    reason: str,
    export: Path | None,
    dry_run: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Remove whole runs for good, with their attempts and logs. Or remove the log or the outputs of
    one task at once, such as after a secret was printed.

    A run is removed only if it is settled and nothing depends on it. For an archive, the command
    removes what the archive no longer keeps (arkqueue archive set NAME keep completed=30d). No
    other run gets the address of a purged run; the address says who purged it. After --log, nobody
    can read the log, the database is vacuumed, and the command lists what may still have a copy.
    The command works on the database, without a server, as `arkqueue migrate` does.
    """
    from arkqueue.cli.installation import load, opened

    is_of_task, is_of_archive = log or outputs, any(map(is_archive, names))
    _check(names, reason, export, is_of_task=is_of_task, dry_run=dry_run)
    with opened(load(ctx, **options), "purge", threading.Event()) as session:
        if is_of_archive:
            _purge_by_age(session, names[0], reason, export, dry_run, as_json)
        elif is_of_task:
            _remove(session, names[0], reason, log, outputs, dry_run, as_json)
        else:
            _purge(session, names, reason, export, dry_run, as_json)


def _check(names: Sequence[str], reason: str, export: Path | None, *, is_of_task: bool, dry_run: bool) -> None:
    if is_of_task:
        if len(names) > 1 or export:
            raise click.UsageError("--log and --outputs are for one task, and go without --export.")
        if not (reason.strip() or dry_run):
            raise click.UsageError("Say why, with --reason: it is shown in place of what is removed.")
    if any(map(is_archive, names)) and (len(names) > 1 or is_of_task):
        raise click.UsageError("Name one archive alone, or runs, or with --log or --outputs a task.")
    if export and dry_run:
        raise click.UsageError("--export and --dry-run do not go together: nothing is written in a trial.")
    for name in () if is_of_task else names:
        if "/" in name:
            raise click.UsageError(_of_no_run(name))


def _of_no_run(name: str) -> str:
    """The message for a name that is not that of a run."""
    what = "an item" if f"/{EVERY_TASK}/" in name else "a list" if is_list(name) else ""
    if not what:
        return f"{name} is a task. Say what of it: --log, --outputs, or both."
    run = name.partition("/")[0]
    return f"{name} is {what}. Purge its whole run {run}, or remove the log or the outputs of each task (--log, --outputs)."


@contextmanager
def _writing(export: Path | None) -> Iterator[Export | None]:
    """A new file for the exported runs, which only its owner can read, because logs may contain
    secrets. None: nothing is exported.

    The file's name is on the disk before anything is purged. A file without contents is removed
    again.
    """
    from arkqueue.queue.export import Export

    if export is None:
        yield None
        return
    try:
        file = os.fdopen(os.open(export, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{export}: cannot be written: {error.strerror}. Name a new file.") from None
    try:
        with file:
            _sync_folder(export.parent)
            yield Export(file)
    except OSError as error:
        fault = f"{export}: cannot be written: {error.strerror}"
        remedy = "What it does not hold is not purged. Keep it, and purge the rest into another file."
        raise click.ClickException(f"{fault}. {remedy}") from None
    finally:
        with suppress(FileNotFoundError):
            if not export.stat().st_size:
                export.unlink()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _by() -> str:
    from arkqueue.cli.client import user

    return user() or "somebody at the command line"


def _remove(session: Session, name: str, reason: str, log: bool, outputs: bool, dry_run: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from arkqueue.queue.removal import remove
    from arkqueue.views.find import find_task

    task = find_task(session, name)
    (archive,) = session.rows("archive_of_task", id=task)
    with session.rehearsal(archive.id) if dry_run else nullcontext(session) as acting:
        done = remove(acting, task, _by(), reason if reason.strip() else "a trial", log=log, outputs=outputs)
    if as_json:
        print_json(asdict(done))
        return
    if dry_run:
        say(
            "Nothing is changed. It would be:"
            if done.logs or done.outputs
            else "Nothing is changed, and nothing would be."
        )
    for what, count, is_wanted in (("logs", done.logs, log), ("outputs", done.outputs, outputs)):
        if is_wanted and count:
            say(f"{bold(visible(done.full_name))}: the {what} of {count} attempt{'' if count == 1 else 's'} removed")
        elif is_wanted:
            say(f"{bold(visible(done.full_name))}: no {what} were left to remove")
    if done.live:
        say(f"left alone: {done.live} attempt{'' if done.live == 1 else 's'} that still run. Cancel the task, and purge it again.", err=True)  # fmt: skip
    say("It may still be in:", err=True)
    for holder in done.holders:
        say(f"  {visible(holder)}", err=True)


def _purge(
    session: Session, names: Sequence[str], reason: str, export: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Purge runs. All names are read before anything is removed. Runs that are already purged are
    reported, and do not prevent the purge of others unless all of them are.
    """
    from dataclasses import asdict

    from arkqueue.errors import WasPurged
    from arkqueue.model import RunId
    from arkqueue.queue.purge import purge_runs, sweep
    from arkqueue.queue.purge_batch import Gone
    from arkqueue.views.find import find_run

    if not dry_run:
        sweep(session)  # the rest of an interrupted purge, also of a run that is purged already
    runs, before = list[RunId](), list[WasPurged]()
    for name in names:
        try:
            runs.append(find_run(session, name))
        except WasPurged as error:
            before.append(error)
    if not runs:
        raise before[0]
    with _writing(export) as writes:
        done = purge_runs(session, runs, _by(), reason, writes, dry_run=dry_run)
    if as_json:
        done.gone += [Gone(run=one.thing, by=one.by) for one in before]
        print_json(asdict(done))
    else:
        if dry_run:
            say("Nothing is changed. It would be:" if done.runs else "Nothing is changed, and nothing would be.")
        for one in before[:MOST_LINES]:
            say(f"arkqueue: {visible(one.thing)}: {visible(one.fault)}", err=True)
        if len(before) > MOST_LINES:
            say(f"arkqueue: and {len(before) - MOST_LINES} more were purged before", err=True)
        for run in done.runs:
            say(f"{bold(visible(run))}: purged")
        for kept in done.kept:
            _say_kept(kept)
        _say_gone(done.gone, export)
        if done.left:
            say(f"arkqueue: {done.left} more runs were not judged: a trial lasts two seconds", err=True)
    if done.kept or done.left or (export and (done.gone or before)):
        sys.exit(1)


def _purge_by_age(session: Session, name: str, reason: str, export: Path | None, dry_run: bool, as_json: bool) -> None:
    """Purge the runs and logs that an archive keeps no longer, however long this takes."""
    from dataclasses import asdict

    from arkqueue.archives.retention import purge_by_age
    from arkqueue.views.find import find_archive

    archive = find_archive(session, name)
    with _writing(export) as writes:
        done = purge_by_age(session, archive, _by(), reason, writes, dry_run=dry_run, longest=None)
    if as_json:
        print_json(asdict(done))
        return
    if dry_run:
        say("Nothing is changed. It would be:" if done.is_whole else "Nothing is changed. It would be more than:")
    runs, logs = len(done.runs), done.logs
    say(
        f"{bold(visible(name))}: {runs} run{'' if runs == 1 else 's'} purged, and the log{'' if logs == 1 else 's'} of {logs} attempt{'' if logs == 1 else 's'} removed"
    )
    if dry_run:
        for run in done.runs[:MOST_LINES]:
            say(f"  {visible(run)}")
    for kept in done.kept[:MOST_LINES]:
        _say_kept(kept)
    if len(done.kept) > MOST_LINES:
        say(f"arkqueue: and {len(done.kept) - MOST_LINES} more are kept", err=True)
    _say_gone(done.gone, export)
    if export and done.gone:
        sys.exit(1)


def _say_gone(gone: Sequence[Gone], export: Path | None) -> None:
    """Print the runs that another purge has removed at the same time."""
    hint = f" {visible(str(export))} may not hold it." if export else ""
    for run in gone[:MOST_LINES]:
        say(f"arkqueue: {visible(run.run)}: was purged meanwhile by {visible(run.by)}.{hint}", err=True)
    if len(gone) > MOST_LINES:
        say(f"arkqueue: and {len(gone) - MOST_LINES} more were purged meanwhile", err=True)


def _say_kept(kept: Kept) -> None:
    say(f"arkqueue: {visible(kept.run)}: {visible(kept.fault)}, and is kept. {visible(kept.remedy)}", err=True)
