"""``arkqueue doctor``: rows of the database that break a rule that always has to hold."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from arkqueue.cli.options import as_json, calls_server
from arkqueue.cli.output import bold, print_json, say
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.cli.client import Client


@click.command(epilog="The command may run while tasks run. A crash leaves no row that it would report.")
@click.argument("archive", required=False)
@click.option("--verbose", "-v", is_flag=True, help="Print each rule, and how long its check took.")
@as_json
@calls_server
def doctor(client: Client, archive: str | None, verbose: bool, as_json: bool) -> None:
    """Check the database for rows that break arkqueue's rules, of ARCHIVE or of all archives; exit
    with 1 if there are any.
    """
    found = client.get("/doctor", archive=archive)
    if as_json:
        print_json(found)
    else:
        if verbose:
            for check in found["checks"]:
                say(f"{check['seconds'] * 1000:8.0f} ms  {check['check']}: {check['rule']}")
        for finding in found["findings"]:
            where = finding["name"] or finding["archive"] or "no archive"
            say(f"{bold(visible(where))}: {visible(finding['what'])} ({finding['check']}). {finding['remedy']}")
        for check in found["checks"]:
            if check["more"]:
                say(f"{check['check']}: there are more than these {check['found']}.")
        if not found["findings"]:
            say(f"nothing is wrong ({len(found['checks'])} checks)")
    if found["findings"]:
        sys.exit(1)
