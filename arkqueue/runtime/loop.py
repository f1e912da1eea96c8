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
"""Seconds."""


class Loop:
    """Takes ``turn`` at each ring of ``bell``, and at least every ``poll`` seconds; the turn may answer that it wants the next one sooner.

    An error ends the turn, never the loop. What a database that is away costs is a waiting turn; the first failure and the recovery are told.
    """

    def __init__(self, name: str, turn: Callable[[], float | None], bell: Bell, poll: float, pace: float = 0.0) -> None:
        """``pace``: seconds after a turn before another may begin, however often the bell is rung meanwhile."""
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
        """Let the present turn end, and no other begin."""
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
