"""Sends the deliveries of the outbox, each in its own thread, so that a receiver that hangs does not
hold up others.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import ArkqueueError, DatabaseUnavailable
from arkqueue.notifications import mail, message, webhook
from arkqueue.notifications.sending import NotSent
from arkqueue.queue import notifications
from arkqueue.queue.notifications import Delivery
from arkqueue.text import one_line

log = logging.getLogger("arkqueue")

MOST = 32
"""The most deliveries that a process sends at once: one to each receiver, and
`notifications.MOST_OF_HOST` to each host.
"""
CONNECTIONS = 3
"""Database connections: one to judge and choose, the others to read for notifications and to record
results.
"""
FORGET_EVERY = 3600.0
"""Seconds between two deletions of old deliveries."""
LAST_PATIENCE = 1.0
"""Seconds for which `close` waits for deliveries that are being sent. Those that it leaves are sent
again.
"""


class Sender:
    """Judges, chooses and sends; ``turn`` never waits for a receiver."""

    def __init__(self, session: Session, configuration: Configuration, again: Callable[[], None]) -> None:
        """``again``: called when a delivery has ended, so that the next turn comes at once."""
        self._session, self._configuration, self._again = session, configuration, again
        self._under_way: set[threading.Thread] = set()
        self._lock = threading.Lock()
        self._forgets_at = 0.0

    def turn(self) -> float | None:
        """Judge the runs that have changed, and begin to send the deliveries that are due."""
        is_more = notifications.judge(self._session)
        if (room := MOST - len(self._under_way)) > 0:
            for delivery in notifications.choose(self._session, room):
                self._begin(delivery)
        if time.monotonic() >= self._forgets_at:
            is_more_to_forget = notifications.forget(self._session)
            self._forgets_at = time.monotonic() + (0.0 if is_more_to_forget else FORGET_EVERY)
        return 0.0 if is_more else None

    def close(self) -> None:
        """Wait a moment for deliveries that are being sent."""
        until = time.monotonic() + LAST_PATIENCE
        for thread in list(self._under_way):
            thread.join(max(0.0, until - time.monotonic()))

    def _begin(self, delivery: Delivery) -> None:
        thread = threading.Thread(target=self._send, args=(delivery,), name=f"send delivery {delivery.id}", daemon=True)
        with self._lock:
            self._under_way.add(thread)
        thread.start()

    def _send(self, delivery: Delivery) -> None:
        try:
            self._try(delivery)
        except DatabaseUnavailable as error:
            log.warning("delivery %s is sent again: %s", delivery.id, error)
        except Exception:
            log.exception("delivery %s is sent again", delivery.id)
        finally:
            with self._lock:
                self._under_way.discard(threading.current_thread())
            self._again()

    def _try(self, delivery: Delivery) -> None:
        if why := notifications.why_not(self._session, delivery):
            notifications.drop(self._session, delivery, why)
            return
        try:
            written = message.write(self._session, self._configuration, delivery)
            if written is None:
                notifications.drop(self._session, delivery, "what it is about was deleted or purged")
                return
            if why := mail.why_not(self._configuration, written):
                notifications.drop(self._session, delivery, why)
                return
            send = webhook.send if "://" in delivery.receiver else mail.send
            send(self._configuration, written)
        except DatabaseUnavailable:
            raise
        except NotSent as error:
            self._fail(delivery, error, is_silent=error.is_silent)
        except ArkqueueError as error:
            self._fail(delivery, error, is_silent=False)
        else:
            notifications.record_sent(self._session, delivery)

    def _fail(self, delivery: Delivery, error: ArkqueueError, *, is_silent: bool) -> None:
        log.warning("delivery %s, try %s: %s", delivery.id, delivery.tries, one_line(str(error)))
        fault = f"{error.fault}. {error.remedy}" if error.remedy else error.fault
        if not isinstance(error, NotSent):
            fault = f"{error.thing}: {fault}"
        notifications.record_failure(self._session, delivery, fault, is_silent=is_silent)
