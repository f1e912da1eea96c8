"""Places that archives share fairly: one that needs many leaves some to the others.

An archive may take as many places as are free beside them. So the first archive gets half of the
places at most, the next one half of the others, and so on: there is a place for an archive that has
none yet, until many archives need some at once. An archive that is alone gets half.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from arkqueue.errors import Busy


class Shares:
    """``places``: the places that all archives have together. Any thread may call it."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._changed = threading.Condition()
        self._taken = Counter[str]()

    @contextmanager
    def place(self, archive: str, busy: Busy, patience: float = 0.0) -> Iterator[None]:
        """Have a place inside the ``with`` block. Raises ``busy`` if the archive gets none within
        ``patience`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_place(archive), patience):
                raise busy
            self._taken[archive] += 1
        try:
            yield
        finally:
            with self._changed:
                self._taken[archive] -= 1
                self._taken += Counter()  # forgets archives without places
                self._changed.notify_all()

    def _has_place(self, archive: str) -> bool:
        return self._taken[archive] < self._places - self._taken.total()
