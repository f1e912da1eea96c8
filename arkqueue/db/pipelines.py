"""Sends statements to PostgreSQL in one round trip, and reads their rows. It uses libpq's pipeline
mode, through psycopg's wrapper of libpq.

psycopg's own pipeline waits for the socket at each statement, which costs more than a round trip
(docs/performance.md). This module sends all statements at once. psycopg converts parameters and
rows, and creates the errors.

A statement is prepared when a connection sends it for the second time (`keep_prepared`). The
connection keeps the most recently used statements. psycopg itself prepares nothing on such a
connection, because after a rollback it would make the server forget all prepared statements.
"""

from __future__ import annotations

import itertools
import select
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import psycopg
from psycopg import OperationalError, abc
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import namedtuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader, TimestamptzLoader

ROWS_AT_ONCE = 1000
"""The rows that psycopg makes at once. No other thread runs during this time: 30 ms for 10,000
tasks.
"""
MOST_PREPARED = 200
"""The statements that a connection keeps. The pages alone have 115, each of which takes about 0.1 MB
of memory of its PostgreSQL process. If a connection kept fewer than a visitor's pages need in turn,
it would forget each statement before its next use.
"""


class Call(NamedTuple):
    """A statement with its values. ``binary``: its rows come in PostgreSQL's binary form. ``then``:
    called with the answer, after the whole round trip has succeeded.
    """

    text: bytes
    values: Sequence[Any] = ()
    binary: bool = False
    then: Callable[[Answer], None] | None = None


class _BoundedTime(TimestamptzLoader):
    """Loads a time that Python cannot represent, such as infinity, as the latest or earliest one."""

    def load(self, data: abc.Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return (
                datetime.min if bytes(data).startswith(b"-") or bytes(data).endswith(b"BC") else datetime.max
            ).replace(tzinfo=UTC)


class _BoundedBinaryTime(TimestamptzBinaryLoader):
    """Like `_BoundedTime`."""

    def load(self, data: abc.Buffer) -> datetime:
        try:
            return super().load(data)
        except psycopg.DataError:
            return (datetime.min if bytes(data)[0] & 0x80 else datetime.max).replace(tzinfo=UTC)


class _Bounded:
    """The context of a transformer that loads every time. arkqueue stores no infinite time. If another
    program did, the row must not hide all others, and `arkqueue doctor` names the row. The usual
    transformer is written in C and several times faster.
    """

    def __init__(self, transformer: abc.Transformer) -> None:
        self.connection = transformer.connection
        self.adapters = AdaptersMap(transformer.adapters)
        self.adapters.register_loader("timestamptz", _BoundedTime)
        self.adapters.register_loader("timestamptz", _BoundedBinaryTime)


class Answer:
    """The result of one statement."""

    def __init__(self, result: PGresult, transformer: abc.Transformer) -> None:
        self.pgresult, self._transformer = result, transformer
        self._encoding = "utf-8"
        """Needed by psycopg, like ``pgresult``, to make rows."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed or returned."""
        return self.pgresult.command_tuples or 0

    def rows(self) -> list[Any]:
        """The rows, with columns as attributes; empty if the statement returns none."""
        if self.pgresult.status != ExecStatus.TUPLES_OK:
            return []
        try:
            return self._loaded(self._transformer)
        except psycopg.DataError:
            return self._loaded(Transformer(_Bounded(self._transformer)))

    def _loaded(self, transformer: abc.Transformer) -> list[Any]:
        transformer.set_pgresult(self.pgresult)
        # A row has as many values as the result has columns, so nothing has to be checked for each.
        make = partial(tuple.__new__, namedtuple_row(self).__self__)  # type: ignore[arg-type,attr-defined]
        count, rows = self.pgresult.ntuples, list[Any]()
        for start in range(0, count, ROWS_AT_ONCE):
            rows += transformer.load_rows(start, min(start + ROWS_AT_ONCE, count), make)
        return rows


class _Statements(OrderedDict[tuple[bytes, tuple[int, ...]], bytes]):
    """The names of the prepared statements of one connection, by text and by types of the
    parameters; the most recently used one comes last. The name is empty if the statement was sent
    once.
    """


_prepared: weakref.WeakKeyDictionary[psycopg.Connection[Any], _Statements] = weakref.WeakKeyDictionary()
_numbers = itertools.count(1)


def keep_prepared(connection: psycopg.Connection[Any]) -> None:
    """Prepare repeated statements on a connection. The connection must have a session of its own
    that no pooler gives to others.
    """
    connection.prepare_threshold = None
    _prepared[connection] = _Statements()


def run(connection: psycopg.Connection[Any], calls: Sequence[Call]) -> list[Answer]:
    """Run statements in this order, in one round trip. Raises the error of the first one that
    fails; the later ones have not run then.
    """
    transformer: abc.Transformer = Transformer(connection)
    pg = connection.pgconn
    sent = []
    for call in calls:
        data = transformer.dump_sequence(call.values, [PyFormat.AUTO] * len(call.values))
        sent.append((call, data, transformer.types or (), transformer.formats))
    statements = _prepared.get(connection)
    made = {}
    """The statements that are prepared in this round trip, by the places of their results."""
    places = []
    """The places of the results of the calls."""
    place = itertools.count()
    try:
        pg.enter_pipeline_mode()
        for call, data, types, formats in sent:
            key, name = (call.text, types), b""
            if statements is not None:
                if key not in statements:
                    statements[key] = b""
                elif not (name := statements[key]):
                    name = statements[key] = b"arkqueue_%d" % next(_numbers)
                    pg.send_prepare(name, call.text, types)
                    made[next(place)] = key
                statements.move_to_end(key)
            if name:
                pg.send_query_prepared(name, data, formats, int(call.binary))
            else:
                pg.send_query_params(call.text, data, types, formats, int(call.binary))
            places.append(next(place))
        while statements and len(statements) > MOST_PREPARED:
            if name := statements.popitem(last=False)[1]:
                pg.send_query_params(b"DEALLOCATE " + name, None)
                next(place)
        pg.pipeline_sync()
        results = _received(pg)
        pg.exit_pipeline_mode()
    except BaseException:
        connection.close()  # nobody reads the remaining results
        raise
    for number, key in made.items():
        if statements is not None and results[number].status != ExecStatus.COMMAND_OK:
            statements.pop(key, None)
    for result in results:
        if result.status == ExecStatus.FATAL_ERROR:
            raise error_from_result(result)
    answers = [Answer(results[number], transformer) for number in places]
    for one, answer in zip(calls, answers, strict=True):
        if one.then is not None:
            one.then(answer)
    return answers


def _received(pg: PGconn) -> list[PGresult]:
    """Send the rest of the pipeline, and read all of its results."""
    poll = select.poll()
    poll.register(pg.socket, select.POLLIN | select.POLLOUT)
    while pg.flush():  # there is more than the socket takes at once
        if any(event & ~select.POLLOUT for _, event in poll.poll()):
            pg.consume_input()
    poll.modify(pg.socket, select.POLLIN)
    results: list[PGresult] = []
    while True:
        while pg.is_busy():
            poll.poll()
            pg.consume_input()
        result = pg.get_result()
        if result is not None:
            if result.status == ExecStatus.PIPELINE_SYNC:
                return results
            results.append(result)
        elif pg.status == ConnStatus.BAD:
            for result in results:
                if result.status == ExecStatus.FATAL_ERROR:
                    raise error_from_result(result)
            raise OperationalError(pg.get_error_message())
