"""``arkqueue purge``: remove for good. It speaks to the database itself, so that it works with every role down."""

from __future__ import annotations

import threading
from typing import Any

import click

from arkqueue.cli.options import as_json
from arkqueue.cli.output import bold, print_json, say, visible


@click.command(
    epilog="Example: arkqueue purge papers@12/upload --log --reason 'it printed a password'. Change the secret as well: whoever could read the log may have it."
)
@click.argument("name", metavar="TASK")
@click.option("--log", "log", is_flag=True, help="The logs of its attempts that have ended, and the messages with which they ended.")  # fmt: skip
@click.option("--outputs", is_flag=True, help="Their outputs, and the same messages.")
@click.option("--reason", required=True, metavar="TEXT", help="Why. Whoever may see the task sees this in place of what is removed, and the audit log keeps it: do not quote the secret.")  # fmt: skip
@click.option("--database", metavar="URI", help="A PostgreSQL to use instead of the embedded one.")
@as_json
@click.pass_context
def purge(
    ctx: click.Context, /, name: str, log: bool, outputs: bool, reason: str, as_json: bool, **options: Any
) -> None:
    """Remove the logs or the outputs of a task at once and for good, as after a secret was printed.

    They cannot be read from then on. The database is vacuumed, and what may still hold them is said. It needs no server, but the database, as `arkqueue migrate` does.
    """
    from dataclasses import asdict

    from arkqueue.cli.client import user
    from arkqueue.cli.serve import load, opened
    from arkqueue.queue.removal import remove
    from arkqueue.views.find import find_task

    if not (log or outputs):
        raise click.UsageError("Say what: --log, --outputs, or both.")
    with opened(load(ctx, **options), "purge", threading.Event()) as session:
        task = find_task(session, name)
        done = remove(session, task, user() or "somebody at the command line", reason, log=log, outputs=outputs)
    if as_json:
        print_json(asdict(done))
        return
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
