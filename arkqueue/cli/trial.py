"""A separate server to try arkqueue, for `arkqueue demo` and the applications in
``workflows-examples/``.

The server is real: a separate process with a home folder of its own, and the embedded PostgreSQL
unless the configuration in the folder names another database. The home folder stays, so that the
user can look around in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from arkqueue.cli.output import bold, say
from arkqueue.errors import ArkqueueError

if TYPE_CHECKING:
    from arkqueue.cli.client import Client

T = TypeVar("T")
PATIENCE = 120.0
"""The seconds after which waiting ends with an error."""
SHORTEST, LONGEST = 0.02, 0.2
"""The seconds between two looks at what is waited for, at the beginning and after two seconds."""


def end_with_the_terminal() -> None:
    """Let a closed terminal end this process in an orderly way, so that it does not leave its
    server running.
    """
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda number, _: sys.exit(128 + number))


@contextmanager
def own_server(home: Path, *, slots: int = 4) -> Iterator[Client]:
    """Start a server in a process of its own, and stop it at the end. Its messages go to
    ``serve.log`` in its home folder.
    """
    from arkqueue.cli.client import Client

    address = home / "url"
    # A killed server has left its address.
    address.unlink(missing_ok=True)
    with (home / "serve.log").open("wb") as log:
        options = ["--listen", "127.0.0.1:0", "--slots", str(slots)]
        process = subprocess.Popen(
            [sys.executable, "-m", "arkqueue", "--home", str(home), "serve", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Temporary folders can be small, and the demonstration needs little room.
            env={**os.environ, "ARKQUEUE_MIN_FREE": "0"},
            start_new_session=True,
        )
    try:
        wait(lambda: (address.exists() and address.read_text().strip()) or process.poll() is not None, "the server")
        if process.poll() is not None:
            raise ArkqueueError(
                "the server", f"ended at once: {_last_line(home / 'serve.log')}", f"See {home}/serve.log"
            )
        yield Client(address.read_text("ascii").strip(), (home / "token").read_text("ascii").strip())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait(happened: Callable[[], T], what: str, patience: float = PATIENCE) -> T:
    """Call ``happened`` again and again until it returns a true value. Returns this value. The
    calls become rarer, because a call that asks the server may take as long as a pause.
    """
    begin = time.monotonic()
    while not (answer := happened()):
        waited = time.monotonic() - begin
        if waited > patience:
            raise ArkqueueError(
                what, f"did not come within {patience:.0f} seconds", "See serve.log in its home folder."
            )
        time.sleep(min(max(waited / 10, SHORTEST), LONGEST))
    return answer


def is_at_a_terminal() -> bool:
    """Whether a person at a terminal can press Ctrl-C."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def serve_until_interrupted(client: Client) -> None:
    """Let the server run until somebody presses Ctrl-C, and print the address of its pages."""
    link = client.url + client.post("/sign-in-links")["path"]
    # The parent process may have made the system ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        say(
            f"\n{bold('The pages')} (this link works once, within ten minutes)\n\n  {link}\n\nThe server runs until you press Ctrl-C."
        )
        while True:
            signal.pause()


def _last_line(path: Path) -> str:
    lines = path.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "without a word"
