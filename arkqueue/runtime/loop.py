"""A duty that a thread of its own repeats: each ring of its bell, or a timeout, starts one
iteration.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from arkqueue.errors import DatabaseUnavailable
from arkqueue.runtime.wakeup import Bell

log = logging.getLogger("arkqueue")

PAUSE_AFTER_ERROR = 1.0
"""Seconds until the next iteration after an error."""


class Loop:
    """Calls ``turn`` at each ring of ``bell``, and at least every ``poll`` seconds. ``turn`` may return
    fewer seconds until its next call.

    An error ends the iteration, but not the loop. If the database is away, the log reports the first
    failure and the recovery.
    """

    def __init__(self, name: str, turn: Callable[[], float | None], bell: Bell, poll: float, pace: float = 0.0) -> None:
        """``pace``: the fewest seconds between two iterations, however often the bell rings."""
        self._turn, self._bell, self._poll, self._pace = turn, bell, poll, pace
        self._closing = threading.Event()
        self._away = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_close(self) -> None:
        self._closing.set()
        self._bell.ring()

    def close(self) -> None:
        """Wait for the end of the present iteration, and begin no other."""
        self.ask_to_close()
        if self._thread.ident is not None:  # it was started
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            pause = self._take_turn()
            if self._pace:
                self._closing.wait(self._pace)
            self._bell.wait(self._poll if pause is None else min(max(pause, 0.0), self._poll))

    def _take_turn(self) -> float | None:
        try:
            pause = self._turn()
        except DatabaseUnavailable as error:
            if not self._away:
                log.warning("%s: %s", self._thread.name, error)
            self._away = True
            return PAUSE_AFTER_ERROR
        except Exception:
            log.exception("%s: a turn failed and is taken again", self._thread.name)
            return PAUSE_AFTER_ERROR
        if self._away:
            log.warning("%s: the database answers again", self._thread.name)
        self._away = False
        return pause
