"""The roles: all in one process (``serve``) or one in each. This is the only place where all parts
of arkqueue are put together.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import logging
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from arkqueue import __version__
from arkqueue.archive_settings import ArchiveSettings, read_settings
from arkqueue.cli import beginning
from arkqueue.cli.installation import load, opened
from arkqueue.cli.options import database
from arkqueue.config import Configuration, is_address
from arkqueue.config.values import MOST_SLOTS
from arkqueue.db.session import Session
from arkqueue.errors import Conflict, HomeTaken
from arkqueue.model import LABEL
from arkqueue.queue import archives
from arkqueue.runtime import address
from arkqueue.runtime.accounts import account

log = logging.getLogger("arkqueue")

TURN = 0.5
"""The most seconds until a signal takes effect that came just before a wait began."""


def run_roles(configuration: Configuration, role: str, *, manager: bool, worker: bool, web: bool, drain: bool) -> None:
    """Run roles until SIGTERM or SIGINT; a second signal no longer waits for running tasks."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    stop = threading.Event()
    signals = _count_signals(stop)
    _give_memory_back()
    start = ExitStack()
    start.enter_context(beginning())
    with start, opened(configuration, role, stop, waits=start.close) as session, ExitStack() as stack:
        does = role
        if web:
            url, announce, link = stack.enter_context(_served(session, configuration))
            does = f"serves at {url}"
        if manager:
            from arkqueue.queue_manager import QueueManager

            queue_manager = QueueManager(session, configuration)
            queue_manager.start()
            stack.callback(queue_manager.close)
        if worker:
            from arkqueue.gateway.sql import gateways
            from arkqueue.task_manager import TaskManager

            watched = _watched(session)
            task_manager = TaskManager(
                gateways(session, configuration.slots, configuration.labels, configuration.scratch_limit), configuration
            )
            engine = task_manager.start(engine=_containers_are_meant(watched, configuration))
            stack.callback(_stopper(task_manager, drain, signals))
        start.close()
        have_no_pauses()
        # Printed only now: a home folder has only one task manager, and a second one ends with an
        # error.
        if web:
            announce()
        click.echo(f"arkqueue {__version__} {does} (home: {configuration.home})")
        if web:
            click.echo(
                f"the pages: {url}{link} (this link works once, within ten minutes; for another one: arkqueue sign-in)"
            )
            _tell_about_names(session)
        if worker:
            _tell_about_processes(watched)
            _tell_about_mounts(watched, configuration)
            click.echo(engine, nl=bool(engine))
        # A signal just before a wait begins does not end the wait: its handler runs in the next
        # iteration.
        while not stop.wait(TURN):
            pass
        if worker:
            # Before the message, whose reader may rely on no further claim.
            task_manager.claim_no_more()
        click.echo("arkqueue stops" + (" when its running tasks have ended" if drain and worker else ""))


@contextmanager
def _served(session: Session, configuration: Configuration) -> Iterator[tuple[str, Callable[[], None], str]]:
    """The API: its address; a function that stores this address in the home folder for the command
    line, beside the administrator's token; and the link that signs a browser in.
    """
    from arkqueue.queue import sign_ins, tokens
    from arkqueue.web import create_app, run_api

    token = tokens.check(session, tokens.first_token(session, configuration.home))
    assert token is not None
    link = f"/-/sign-in?code={sign_ins.code(session, token)}"
    server = run_api(create_app(session, configuration), configuration.host, configuration.port)
    held: list[int] = []

    def announce() -> None:
        if (descriptor := address.announce(configuration.home, server.url)) is not None:
            held.append(descriptor)

    try:
        yield server.url, announce, link
    finally:
        for descriptor in held:
            address.withdraw(configuration.home, descriptor)
        server.close()


def _give_memory_back() -> None:
    """Make the C library return large blocks of freed memory to the system: the flusher and the
    followers of logs use megabytes at a time.

    Without this, the GNU C library keeps such blocks, after the first few, for the thread's next
    use, and the server grows with each long log.
    """
    with suppress(OSError, AttributeError):  # another C library does not need this
        # M_MMAP_THRESHOLD: the library's initial value, which it would raise. A chunk of a log and
        # its event are smaller, because each would otherwise get 16 to 22 new pages, one by one.
        ctypes.CDLL(None).mallopt(-3, 128 << 10)


def have_no_pauses() -> None:
    """Keep one thread from delaying the others: pages have to answer while a large cancellation is
    carried out.
    """
    # The present objects stay: examining them again would delay everything by 60 to 80 ms, after
    # about every hundred long answers.
    gc.freeze()
    # A large page makes at most this number of objects, so the collector runs once after it,
    # instead of 25 times meanwhile.
    gc.set_threshold(20_000)
    # Each of the 20 statements of a page releases the interpreter. Beside a thread that computes,
    # it would get the interpreter back only after 5 ms each time.
    sys.setswitchinterval(0.001)


def _count_signals(stop: threading.Event) -> Callable[[], int]:
    count = 0

    def on_signal(*_: object) -> None:
        nonlocal count
        count += 1
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    return lambda: count


def _stopper(task_manager: Any, drain: bool, signals: Callable[[], int]) -> Callable[[], None]:
    """Stops the task manager. While it drains, a further signal makes it hand its tasks back."""

    def stop() -> None:
        ending = threading.Thread(target=task_manager.stop, kwargs={"drain": drain})
        ending.start()
        while ending.is_alive():
            ending.join(0.2)
            # The first signal has started the stop; the second may have come before this point.
            if drain and signals() > 1:
                task_manager.stop(drain=False)
                break
        ending.join()
        if left := len(task_manager.left):
            tasks = "1 task goes" if left == 1 else f"{left} tasks go"
            click.echo(f"{tasks} on in containers, for the next task manager of this home to adopt")

    return stop


def _watched(session: Session) -> list[tuple[Any, ArchiveSettings]]:
    """The rows of the watched archives, each with its settings. Archives whose settings cannot be
    read are logged and left out: the others are served all the same.
    """
    watched = []
    for archive in archives.watched(session):
        try:
            watched.append((archive, read_settings(archive.settings, archive.name)))
        except Conflict as error:
            log.warning("%s", error)
    return watched


def _containers_are_meant(watched: Sequence[tuple[Any, ArchiveSettings]], configuration: Configuration) -> bool:
    """Whether tasks are meant to run in containers, by the configuration or by the settings of an
    archive.
    """
    return "docker" in configuration.model_fields_set or any(settings.image for _, settings in watched)


def _tell_about_names(session: Session) -> None:
    """Print a note for each archive with a reserved name: its page has another path, or its locks
    cannot be set.
    """
    from arkqueue.model import GLOBAL
    from arkqueue.names import RESERVED

    for archive in archives.watched(session):
        if archive.name in RESERVED:
            click.echo(
                f"archive {archive.name}: the server has an address of its own at /{archive.name}. The archive keeps its name; "
                f"its page is at /-/archives/{archive.name}."
            )
        if archive.name == GLOBAL:
            click.echo(
                f"archive {archive.name}: the locks of the whole installation are called {GLOBAL}/NAME. The archive keeps its name; "
                "no command can set or pause its own locks."
            )


def _tell_about_processes(watched: Sequence[tuple[Any, ArchiveSettings]]) -> None:
    """Print plainly what the right of archives to run processes means."""
    for archive, settings in watched:
        if settings.process:
            user = settings.process_user or account()
            click.echo(
                f"archive {archive.name}: its tasks run as processes of this host, as the user {user}. "
                f"Whoever may commit to {archive.url} can do here whatever {user} may do."
            )


def _tell_about_mounts(watched: Sequence[tuple[Any, ArchiveSettings]], configuration: Configuration) -> None:
    """Print the archives whose processes do not start here, because a committer could become root
    through a mount.
    """
    from arkqueue.executor.exposure import exposure

    for archive, settings in watched:
        if found := exposure(archive.name, settings, configuration.mounts):
            log.warning("%s: %s. Its process tasks wait. %s", found.thing, found.fault, found.remedy)


_slots = click.option(
    "--slots",
    type=click.IntRange(1, MOST_SLOTS),
    metavar="N",
    help="How many tasks run at once (default: the number of processors).",
)


def _names(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...] | None:
    for value in values:
        if not re.fullmatch(LABEL, value):
            raise click.BadParameter(
                f"{value!r} is not a valid label; use letters, digits, '.', '_' and '-' (at most 40), beginning with a letter or a digit"
            )
    return values or None


_labels = click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="LABEL",
    callback=_names,
    help="Labels of this task manager, for which tasks ask with runs_on; several may be given.",
)


def _address(_ctx: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_address(value):
        raise click.BadParameter(f"{value!r} is not a valid address; write it like 127.0.0.1:8417 or [::1]:8417")
    return value


_listen = click.option(
    "--listen", metavar="HOST:PORT", callback=_address, help="Where the API listens (default: 127.0.0.1:8417)."
)
_drain = click.option(
    "--drain",
    is_flag=True,
    help="When stopped, let running tasks finish; otherwise processes are stopped and their tasks handed back, and containers go on for the next start.",
)
_healthy = click.option(
    "--healthy", is_flag=True, help="Do not start; say whether a running one has reported recently (exit 1: no)."
)


@click.command()
@_slots
@_labels
@_listen
@database
@_drain
@click.pass_context
def serve(ctx: click.Context, /, drain: bool, **options: Any) -> None:
    """Run every role in one process: queue manager, task manager, API.

    Without --database it keeps a PostgreSQL of its own in the home folder.
    """
    run_roles(load(ctx, **options), "serve", manager=True, worker=True, web=True, drain=drain)


@click.command()
@database
@_healthy
@click.pass_context
def manager(ctx: click.Context, /, healthy: bool, **options: Any) -> None:
    """Run a queue manager: read repositories, plan, fire schedules, lapse leases. Any number may
    run.
    """
    if healthy:
        from arkqueue.cli.health import tell_manager

        tell_manager(load(ctx, **options))
    run_roles(load(ctx, **options), "manager", manager=True, worker=False, web=False, drain=False)


@click.command()
@_slots
@_labels
@database
@_drain
@click.option(
    "--homes",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Take the first home in FOLDER that no other worker has: for replicas that share a disk.",
)
@_healthy
@click.pass_context
def worker(ctx: click.Context, /, drain: bool, homes: Path | None, healthy: bool, **options: Any) -> None:
    """Run a task manager: claim tasks and run them. One for each home folder; any number of hosts."""
    if healthy:
        from arkqueue.cli.health import tell_worker

        tell_worker(load(ctx, **options))

    def run(**home: Path) -> None:
        run_roles(load(ctx, **options, **home), "worker", manager=False, worker=True, web=False, drain=drain)

    if homes is None:
        run()
        return
    for number in itertools.count(1):
        with suppress(HomeTaken):
            run(home=homes.absolute() / str(number))
            return


@click.command()
@_listen
@database
@click.pass_context
def web(ctx: click.Context, /, **options: Any) -> None:
    """Run the API."""
    run_roles(load(ctx, **options), "web", manager=False, worker=False, web=True, drain=False)
