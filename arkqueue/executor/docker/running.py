"""One attempt in its container: this module follows its output to the end, stops it, judges its
end, and cleans up.

``executor`` makes one object for a container that it is about to start, or that it adopts. The
object has one thread, which reads the live connection and hands the bytes to the sink. While the
sink blocks, the engine's buffer fills and the task waits. A stop has a thread of its own while it
lasts, so the waits of the first thread do not delay it.

If the container's processes were gone when the live connection ended, its output is complete.
Otherwise, the connection broke, the task closed its output, the engine went away, or the attempt is
adopted. Then the thread reads the engine's log from its beginning, without the bytes that have been
handed over. It reads the log while it grows, and once more after the container has ended, because
only then is the log complete.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from docker.errors import APIError

from arkqueue.executor import Ended
from arkqueue.executor.docker.engine import CONFLICT, NOT_FOUND, Engine, EngineUnavailable, Flow, said
from arkqueue.executor.docker.output import Frames, LogReader, Output, joined
from arkqueue.executor.docker.samples import Samples
from arkqueue.executor.docker.state import State, size_in_words
from arkqueue.model import Stream

SIGNAL_TIMEOUT = 2.0
"""The seconds that the engine has to answer to a signal. The signal takes effect without the
answer, too.
"""
KILL_AGAIN = 1.0
"""The seconds until a container that still exists is killed again."""
READ_AHEAD = 0.05
"""The seconds for reading the waiting bytes of an attached connection before the container is
killed.
"""
WAIT_STEP = 1.0
"""The seconds of one wait for the end of a container whose output has ended or broken off."""
ASK_AGAIN = 0.25
"""The seconds between two requests to an engine that does not answer."""
LAST_WORDS = 5.0
"""The seconds for reading the rest of a live connection after the end of its container; then the
connection is closed.
"""
LOG_READINGS = 10
"""How often the log of a container that has ended is read, until it is read completely."""
REMOVALS = 20
"""How often a container is removed, because something in it can be busy for a moment."""
REMEMBERED_EVENTS = 256
"""The number of events that an engine remembers."""

KILLED = 128 + signal.SIGKILL
"""The exit code of a container whose first program got SIGKILL, and of a shell whose last program
did.
"""

_NEVER = datetime.min.replace(tzinfo=UTC)


class DockerRunning:
    """One attempt and the thread that follows it."""

    def __init__(
        self,
        engine: Engine,
        container: str,
        output: Output,
        live: Flow | None,
        note: Callable[[int, bytes], str],
        has_ended: Callable[[DockerRunning], None],
        patience: float,
        doubt: EngineUnavailable | None,
        samples: Samples,
    ) -> None:
        """``live``: the connection that was made before the container starts; None for an adopted
        one. ``note``: makes words from an exit code and the end of stderr. ``patience``: the
        seconds for which a silent engine is waited for.
        """
        self._engine, self._container, self._output, self._live = engine, container, output, live
        self._note, self._report_end, self._patience = note, has_ended, patience
        self.doubt = doubt
        self._samples = samples
        self._changed = threading.Condition()
        self._flows: set[Flow] = set()
        self._stop_by: float | None = None
        self._signaled: datetime | None = None
        self._missed: datetime | None = None
        self._silent_since: float | None = None
        self._is_left = self._is_gone = False
        self._ended: Ended | None = None
        self._has_ended = threading.Event()

    def wait(self, timeout: float | None = None) -> Ended | None:
        """The end, once all output has been handed to the sink and the container is removed. None:
        this has not happened within ``timeout`` seconds.
        """
        return self._ended if self._has_ended.wait(timeout) else None

    def stop(self, grace: float) -> None:
        """Stop the attempt: SIGTERM to all its processes, and SIGKILL after ``grace`` seconds.
        Returns at once. A later call with a shorter grace shortens it.
        """
        by = time.monotonic() + grace
        with self._changed:
            if self._is_gone or (self._stop_by is not None and self._stop_by <= by):
                return
            is_first = self._stop_by is None
            self._stop_by = by
            self._changed.notify_all()
        if is_first:
            threading.Thread(target=self._stop, name="attempt stop", daemon=True).start()

    def leave(self) -> None:
        """Leave the container without ending it, so that it can be adopted. ``wait`` then soon
        returns an end that says so.
        """
        with self._changed:
            self._is_left = True
            self._changed.notify_all()
            for flow in self._flows:
                flow.hang_up()

    def follow(self) -> None:
        self._samples.begin(self._container)
        threading.Thread(target=self._follow, name="attempt", daemon=True).start()

    # --- To the end ---

    def _follow(self) -> None:
        try:
            ended = self._life()
        except _Left:
            ended = Ended(None, stopped=False, left=True)
        except Exception as error:  # after any error, the attempt must have an end
            ended = self._lost(f"it could not be followed any more: {error}")
        self._is_over()
        self._ended = replace(ended, usage=self._samples.end(self._container))
        self._report_end(self)
        self._has_ended.set()

    def _life(self) -> Ended:
        try:
            state = self._output_and_end()
        except _Away:
            return self._lost(
                f"the Docker engine said nothing of it for {self._patience:.0f} s; its container may still run"
            )
        if state is None:
            return self._lost("its container was removed, not by arkqueue")
        self._is_over()
        ended = self._judged(state)
        remains = removed(self._engine, self._container)
        if not self._output.failure and not remains:
            return ended
        return replace(ended, message="; ".join(filter(None, (ended.message, self._output.failure, remains))))

    def _output_and_end(self) -> State | None:
        """Hand over all output and wait for the end. Returns the final state; None if the container
        is gone.
        """
        seen_until = _NEVER
        state = None
        if self._live is not None:
            is_whole = self._copy_live(self._live)
            seen_until = datetime.now(UTC) if is_whole else _NEVER
        is_adopted = self._live is None
        last: dict[Stream, bytes] = {}
        while True:
            self._check_left()
            try:
                state = self._state() if is_adopted else self._state_after_wait()
                is_adopted, self._silent_since = False, None
                if state is None or state.finished <= seen_until:
                    return state
                if state.is_running:
                    self._missed = None
                    last = self._follow_log()
                    continue
                self._copy_log(last)
                return state
            except EngineUnavailable:
                self._await_engine()

    def _copy_live(self, live: Flow) -> bool:
        """Hand over the output until the connection ends. Returns whether it ended between two
        frames.
        """
        frames = Frames()
        with self._open(live):
            for data in live:
                for stream, piece in joined(frames.feed(data)):
                    self._output.write(stream, piece)
        return not frames.is_cut

    def _follow_log(self) -> dict[Stream, bytes]:
        """Hand over the new part of the log until the container ends. Returns the last byte of each
        stream that a live connection has received in the meantime.

        The log may lack the very last newline, and only a live connection shows this.
        """
        last: dict[Stream, bytes] = {}
        with contextlib.ExitStack() as opened, contextlib.suppress(APIError):
            live = opened.enter_context(self._open(self._engine.attach(self._container)))
            log = opened.enter_context(self._open(self._engine.log(self._container, follow=True)))
            listener = threading.Thread(target=_keep_last, args=[live, last], name="attempt end", daemon=True)
            listener.start()
            self._copy(log, Frames(), LogReader(self._output.counts))
            state = self._state_after_wait()
            if state is not None and not state.is_running:
                # The engine ends the connection when the container ends, but its last bytes may
                # still be on their way.
                listener.join(LAST_WORDS)
            live.hang_up()
            listener.join()
        return last

    def _copy_log(self, last: dict[Stream, bytes]) -> None:
        """Hand over the rest of the complete log."""
        fault = ""
        for _ in range(LOG_READINGS):
            try:
                log = self._engine.log(self._container, follow=False)
            except APIError as error:
                fault = said(error)
                break
            frames, reader = Frames(), LogReader(self._output.counts)
            with self._open(log):
                self._copy(log, frames, reader)
            fault = frames.engine_says
            if not fault and not log.is_broken:
                for stream, piece in reader.end(last):
                    self._output.write(stream, piece)
                if reader.is_short:
                    cut = "some of its output is lost: the engine's log was cut, and has less of it than had been read before"
                    self._output.failure = self._output.failure or cut
                return
            self._pause()
        self._output.failure = (
            self._output.failure or f"the rest of its output is lost: {fault or 'the log breaks off'}"
        )

    def _copy(self, log: Flow, frames: Frames, reader: LogReader) -> None:
        for data in log:
            for stream, piece in joined(reader.feed(frames.feed(data))):
                self._output.write(stream, piece)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_left, ASK_AGAIN)
        self._check_left()

    def _await_engine(self) -> None:
        """Wait until the engine answers again. Raises _Away if it does not, or if it answers but
        does not report the container for too long.
        """
        if self._silent_since is None:
            self._silent_since = time.monotonic()
        until = self._silent_since + self._patience
        while time.monotonic() <= until:
            if self._engine.answers(SIGNAL_TIMEOUT):
                return
            self._missed = self._missed or datetime.now(UTC)
            self._pause()
        raise _Away

    def _state_after_wait(self) -> State | None:
        with contextlib.suppress(APIError):
            self._engine.wait(self._container, WAIT_STEP)
        self._check_left()
        return self._state()

    def _state(self) -> State | None:
        try:
            with self._engine.calls() as api:
                return State.of(api.inspect_container(self._container))
        except APIError as error:
            if error.status_code == NOT_FOUND:
                return None
            raise

    @contextlib.contextmanager
    def _open(self, flow: Flow) -> Iterator[Flow]:
        """A stream that ``leave`` closes."""
        with self._changed:
            self._flows.add(flow)
            is_left = self._is_left
        try:
            if is_left:
                raise _Left
            yield flow
        finally:
            with self._changed:
                self._flows.discard(flow)
            flow.close()
        self._check_left()

    def _check_left(self) -> None:
        if self._is_left:
            raise _Left

    def _is_over(self) -> None:
        """Record that the container's processes are gone, or that this process must not end them
        any more.
        """
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()

    # --- The end, judged ---

    def _judged(self, state: State) -> Ended:
        if not state.was_started:
            return self._lost("its container had not been started")
        signaled = self._signaled  # a signal that came too late resets this, perhaps at this moment
        stopped = signaled is not None and state.finished >= signaled
        if stopped or state.exit_code == 0:
            return Ended(state.exit_code, stopped)
        limit = f"its limit is {size_in_words(state.memory)} (`resources: memory`)" if state.memory else ""
        if state.out_of_memory:
            why = limit or "the host's is used up"
            return Ended(state.exit_code, stopped, f"it was ended because it ran out of memory: {why}")
        if message := self._note(state.exit_code, self._output.last_error_output):
            return Ended(state.exit_code, stopped, message)
        if ended_by := self._foreign_end(state):
            return Ended(state.exit_code, stopped, ended_by, lost=True)
        if state.exit_code == KILLED and limit:
            # A busy engine may see the end first, and not check whether memory was the cause. Or
            # the task killed itself.
            maybe = f"the engine does not say why; maybe it ran out of memory: {limit}"
            return Ended(state.exit_code, stopped, maybe)
        return Ended(state.exit_code, stopped, state.error)

    def _foreign_end(self, state: State) -> str:
        """Words for an end that the task did not cause itself; empty if it did."""
        gone = "the Docker engine went away or was restarted while the task ran, and ended it"
        try:
            events = self._engine.events()
            own = [event["Action"] for event in events if event.get("Actor", {}).get("ID") == self._container]
            # If an engine remembers only few events, and not the start of this container, it was
            # restarted recently.
            was_away = self._missed is not None and state.finished >= self._missed
            is_new = "start" not in own and len(events) < REMEMBERED_EVENTS
            if (was_away or is_new) and not self._engine.keeps_containers():
                return gone
            if "kill" in own and self._signaled is None:
                return (
                    "it was ended from outside: the Docker engine is being stopped, or somebody stopped the container"
                )
            return ""
        except EngineUnavailable:
            return gone

    def _lost(self, message: str) -> Ended:
        stopped = self._signaled is not None
        return Ended(None, stopped, message, lost=not stopped)

    # --- Ended by us ---

    def _stop(self) -> None:
        """Send SIGTERM, wait for the grace, and send SIGKILL until the container is gone. This
        thread waits for nothing that the attempt waits for.
        """
        assert self._stop_by is not None
        if (rest := self._stop_by - time.monotonic()) > 0:
            self._signal("SIGTERM", min(rest, SIGNAL_TIMEOUT))
        with self._changed:
            while not self._is_gone and (rest := self._stop_by - time.monotonic()) > 0:
                self._changed.wait(rest)
        while not self._is_gone and not self._is_left:
            # The sink may block the following thread, but the engine sees the end only when the
            # connection is read to its end.
            self._read_ahead(READ_AHEAD)
            if not self._signal("SIGKILL", SIGNAL_TIMEOUT):
                return
            self._read_ahead(KILL_AGAIN)
            with self._changed:
                self._changed.wait_for(lambda: self._is_gone, READ_AHEAD)

    def _read_ahead(self, seconds: float) -> None:
        with self._changed:
            flows = list(self._flows)
        for flow in flows:
            flow.read_ahead(seconds)

    def _signal(self, name: str, timeout: float) -> bool:
        """Send a signal. Returns False if the engine says that no process is left."""
        is_first = self._signaled is None
        if is_first:
            self._signaled = datetime.now(UTC)
        try:
            self._engine.post(f"/containers/{self._container}/kill", timeout, signal=name)
        except EngineUnavailable:
            pass
        except APIError as error:
            if "paused" in said(error):
                with contextlib.suppress(APIError, EngineUnavailable):
                    self._engine.post(f"/containers/{self._container}/unpause", timeout)
                    self._engine.post(f"/containers/{self._container}/kill", timeout, signal=name)
            elif error.status_code in (NOT_FOUND, CONFLICT):
                if is_first:
                    # The task had ended before the signal, so the outcome is its own.
                    self._signaled = None
                return False
        return True


class _Left(Exception):
    """The task manager has left the attempt."""


class _Away(Exception):
    """The engine did not come back, or does not report the container."""


def _keep_last(live: Flow, last: dict[Stream, bytes]) -> None:
    frames = Frames()
    for data in live:
        for stream, piece in frames.feed(data):
            last[stream] = piece[-1:]


def removed(engine: Engine, container: str) -> str:
    """Remove a container and its own volumes, whether it runs or not. Returns words about what is
    left; empty if nothing is.
    """
    words = ""
    for _ in range(REMOVALS):
        try:
            with engine.calls() as api:
                api.remove_container(container, v=True, force=True)
        except EngineUnavailable as error:
            return f"its container could not be removed: {error}"
        except APIError as error:
            if error.status_code == NOT_FOUND:
                return ""
            words = said(error)  # "removal … is already in progress", "device or resource busy"
            time.sleep(ASK_AGAIN)
            continue
        return ""
    return f"its container could not be removed: {words}"
