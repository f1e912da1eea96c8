"""Open pages receive the changes of their content: only the pages of that content, only until the
end of the sign-in, and with a limit for pages that do not read.
"""

from __future__ import annotations

import html
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import parse_qsl

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.logs import Logs
from arkqueue.model import INSTALLATION, ArchiveId, Stream
from arkqueue.queue import claim, locks, notifications, pauses, removal, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, connections, create_app, live, run_api
from tests.builders import HOST, PROCESS, AnArchive, a_gateway, an_archive
from tests.db.outbox import choose, judge, set_receivers
from tests.system.pages.conftest import Visitors, secret_of
from tests.system.waking import waking_session
from tests.system.web.conftest import PLAIN
from tests.waiting import eventually

__all__ = ["waking_session"]

CHANGED = "event: changed"


@contextmanager
def opened(browser: httpx.Client, address: str, read: Mapping[str, str] | None = None) -> Iterator[Iterator[str]]:
    """The events of an open page, from the one that it gets as it opens on."""
    with browser.stream("GET", httpx.URL(address).copy_merge_params(read or {})) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        next(line for line in lines if line == ": open")
        yield lines


def test_the_pages_that_show_an_archive_hear_of_its_changes(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    papers, thesis = an_archive(session, "papers"), an_archive(session, "thesis")
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser = visitor(Scope.READ)
    with (
        opened(browser, "/-/live?of=papers") as of_papers,
        opened(browser, "/-/live?of=thesis") as of_thesis,
        opened(browser, "/-/live") as of_all,
    ):
        papers.commit({"a": ""})
        assert CHANGED in of_papers
        assert CHANGED in of_all
        papers.claim("a@2")
        assert CHANGED in of_papers
        papers.run("a@2")
        assert CHANGED in of_papers
        thesis.commit({"a": ""})
        assert CHANGED in of_thesis
        server.close()
        assert CHANGED not in of_thesis, "it heard of the other archive, too"


def test_the_pages_that_show_a_log_hear_of_its_removal(visitor: Visitors, session: Session) -> None:
    papers = an_archive(session, "papers")
    papers.commit({"a": ""})
    papers.run("a@2")
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser = visitor(Scope.READ)
    with opened(browser, "/-/live?of=papers", as_of(browser, "/papers@2/a")) as events:
        papers.sql("update attempt set log_bytes = 1")
        removal.remove(session, papers.task("a@2"), "ann", "a password", log=True)
        assert CHANGED in events


def test_the_page_of_an_item_hears_of_the_changes_of_its_archive(visitor: Visitors, session: Session) -> None:
    papers = an_archive(session, "papers")
    papers.commit({"a": "foreach: [x, y]"})
    browser = visitor(Scope.READ)
    page = browser.get("/papers@2/*/x", headers={"accept": "text/html"}).text
    (address,) = re.findall(r' data-live="([^"]*)"', page)
    with opened(browser, html.unescape(address), as_of(browser, "/papers@2/*/x")) as events:
        papers.run("a/x@2")
        assert CHANGED in events


CI = "https://hooks.example.org/ci"
CHANGES: dict[str, Callable[[Session, AnArchive], object]] = {
    "everything is paused": lambda session, _: pauses.pause_all(session, "Friday", "ann"),
    "everything is resumed": lambda session, _: pauses.resume_all(session, "ann"),
    "a host is drained": lambda session, _: pauses.drain(session, HOST, "new disks", "ann"),
    "a host is resumed": lambda session, _: pauses.resume_worker(session, HOST, "node2", "ann"),
    "a lock of all is limited": lambda session, _: locks.set_capacity(session, INSTALLATION, "global/tape", 2, "ann"),
    "a lock of all is paused": lambda session, _: locks.pause(session, INSTALLATION, "global/tape", "dust", "ann"),
    "a lock is limited": lambda session, papers: locks.set_capacity(session, ArchiveId(papers.id), "tex", 2, "ann"),
    "a task manager has a full disk": lambda session, _: claim.register(session, PROCESS, HOST, "node2", 4, low_disk="1 MiB free"),
    "a task manager stops": lambda session, _: claim.unregister(session, PROCESS),
    "a task manager starts": lambda session, _: claim.register(session, PROCESS, HOST, "node2", 4),
    "a token is made": lambda session, _: tokens.create(session, name="ci", scope=Scope.READ, by="ann"),
    "a token is revoked": lambda session, _: tokens.revoke(session, tokens.tokens(session)[-1].id, "ann"),
    "settings are changed": lambda _, papers: set_receivers(papers, **{CI: ["failed"]}),
    "a task fails": lambda _, papers: papers.fail("a@3"),
    "a notification is made": lambda session, _: judge(session),
    "a notification was not taken": lambda session, papers: notifications.record_failure(session, choose(papers)[0], "503", is_silent=True),
    "a notification is sent again": lambda session, _: notifications.resend(session, 1, "ann"),
    "a notification is sent": lambda session, papers: notifications.record_sent(session, choose(papers)[0]),
}  # fmt: skip
"""What open pages show, and hear of."""


def test_open_pages_hear_of_everything_that_they_show(visitor: Visitors, session: Session) -> None:
    claim.register(session, PROCESS, HOST, "node2", 4)
    papers = an_archive(session)
    papers.commit({"b": "lock: [tex, global/tape]"})
    papers.commit({"a": ""})
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser = visitor(Scope.ADMIN)
    for address in (
        "/-/notifications",
        "/-/settings/papers",
        "/-/task-managers",
        "/-/tokens",
        "/-/locks",
        "/-/search?q=change",
        "/",
    ):
        assert ' data-live="/-/live' in browser.get(address).text, address
    pages = "/papers", "/"
    for what, change in CHANGES.items():
        moments = [as_of(browser, page) for page in pages]
        change(session, papers)
        for page, moment in zip(pages, moments, strict=True):
            with opened(browser, f"/-/live{'?of=papers' if page != '/' else ''}", moment) as events:
                assert next(line for line in events if line.startswith("event: ")) == CHANGED, (what, page)


def test_a_task_manager_that_reports_nothing_new_wakes_no_page(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    claim.register(session, PROCESS, HOST, "node2", 4, low_disk="2 MiB free")
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser = visitor(Scope.READ)
    with opened(browser, "/-/live", as_of(browser, "/")) as events:
        claim.register(session, PROCESS, HOST, "node2", 4, low_disk="1 MiB free")
        server.close()
        assert CHANGED not in events


def test_a_page_hears_of_no_archive_that_its_token_is_not_for(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    papers, vault = an_archive(session, "papers"), an_archive(session, "vault")
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser, other = visitor(Scope.READ, "papers"), visitor(Scope.READ)
    assert browser.get("/-/live?of=vault").status_code == 404
    assert visitor().get("/-/live").status_code == 204
    # Both pages are current: each new token is a change, which every page hears.
    read = {page: as_of(someone, page) for someone, page in ((browser, "/"), (other, "/vault"))}
    with (
        opened(browser, "/-/live", read["/"]) as events,
        opened(other, "/-/live?of=vault", read["/vault"]) as of_vault,
    ):
        vault.commit({"a": ""})
        assert CHANGED in of_vault
        papers.commit({"a": ""})
        assert CHANGED in events
        server.close()
        assert CHANGED not in events


def as_of(browser: httpx.Client, address: str) -> dict[str, str]:
    """What a page says of the moment at which the server has read it."""
    page = browser.get(address, headers={"accept": "text/html"}).text
    (found,) = re.findall(r' data-as-of="([^"]*)"', page)
    return dict(parse_qsl(html.unescape(found)))


def test_a_page_hears_at_once_of_a_change_between_its_making_and_its_subscription(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    papers, thesis = an_archive(session, "papers"), an_archive(session, "thesis")
    assert session.wakeups is not None
    assert session.wakeups.listening.wait(30)
    browser = visitor(Scope.READ)
    read = {name: as_of(browser, f"/{name}") for name in ("papers", "thesis")}
    papers.commit({"a": ""})
    with opened(browser, "/-/live?of=papers", read["papers"]) as events:
        assert CHANGED in events
    with (
        opened(browser, "/-/live?of=thesis", read["thesis"]) as of_thesis,
        opened(browser, "/-/live?of=papers", as_of(browser, "/papers")) as of_papers,
    ):
        thesis.commit({"a": ""})
        assert CHANGED in of_thesis
        server.close()
        assert CHANGED not in of_thesis, "one change was heard twice"
        assert CHANGED not in of_papers, "it is current"


def test_badges_feeds_and_programs_watch_nothing(visitor: Visitors, session: Session) -> None:
    an_archive(session, "papers").commit({"a": ""})
    browser = visitor(Scope.READ)
    for address, accept in (
        ("/papers?format=svg", "image/avif,*/*"), ("/papers?format=atom", "text/html"), ("/papers", "*/*"), ("/papers", "application/json"),
    ):  # fmt: skip
        assert browser.get(address, headers={"accept": accept}).status_code == 200
        assert not session.is_watched
    browser.get("/papers", headers={"accept": "text/html"})
    assert session.is_watched


def test_a_page_that_was_away_while_nobody_watched_hears_at_once(
    visitor: Visitors, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_archive(session, "papers")
    browser = visitor(Scope.READ)
    monkeypatch.setattr(live, "WATCHED", 0)
    with opened(browser, "/-/live?of=papers", as_of(browser, "/papers")) as events:
        assert CHANGED in events


def test_a_page_of_another_process_hears_at_once(visitor: Visitors, session: Session) -> None:
    an_archive(session, "papers")
    browser = visitor(Scope.READ)
    with opened(browser, "/-/live?of=papers", {"as-of": "00000000-1"}) as events:
        assert CHANGED in events, "a server that has started anew knows nothing of the page"


def test_a_page_of_a_log_hears_at_once_of_lines_since_its_making(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    papers = an_archive(session, "papers")
    papers.commit({"a": ""})
    claimed = papers.claim("a@2")
    logs = Logs(a_gateway(session), 1 << 20, 1 << 20)
    writer = logs.open(claimed.attempt)
    browser, address = visitor(Scope.READ), f"/-/live?of=papers&attempt={claimed.attempt}"
    read = as_of(browser, "/papers@2/a")
    writer.write(Stream.STDOUT, b"one\n")
    logs.flush([writer])
    with opened(browser, address, read) as events, opened(browser, address, read) as beside:
        assert CHANGED in events
        assert CHANGED in beside
    with opened(browser, address, as_of(browser, "/papers@2/a")) as events:
        writer.write(Stream.STDOUT, b"two\n")
        logs.flush([writer])
        assert CHANGED in events
    with opened(browser, address, as_of(browser, "/papers@2/a")) as current:
        with opened(browser, address, read) as events:
            assert CHANGED in events  # so the size of the log is known
        server.close()
        assert CHANGED not in current


def test_a_page_ends_with_its_sign_in(visitor: Visitors, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    with opened(visitor(Scope.READ), "/-/live") as events:
        for token in tokens.tokens(session):
            tokens.revoke(session, token.id, "test")
        for _ in events:
            pass  # until it ends


def test_a_page_ends_with_its_sign_in_also_where_other_archives_are_public(
    session: Session,
    configuration: Configuration,
    monkeypatch: pytest.MonkeyPatch,
    no_queue_manager: None,  # noqa: ARG001  it sets
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT", 0.05)
    an_archive(session, "papers")
    an_archive(session, "open")
    token, secret = tokens.create(session, name="test", scope=Scope.READ, archives=None, by="test")
    server = run_api(create_app(session, configuration.model_copy(update={"public": ("open",)})), "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=server.url, **PLAIN) as browser:
            browser.post("/-/sign-in", data={"token": secret})
            with opened(browser, "/-/live?of=papers") as of_papers, opened(browser, "/-/live") as of_all:
                tokens.revoke(session, token.id, "test")
                for events in (of_papers, of_all):
                    for line, _ in enumerate(events):
                        assert line < 300, "it did not end"
            with opened(browser, "/-/live?of=open") as of_open:
                for _ in range(3):
                    assert "event: here" in of_open, "it ended although everybody may see the archive"
    finally:
        server.close()


def test_a_page_that_does_not_read_is_dropped_and_holds_up_no_other(
    visitor: Visitors, session: Session, configuration: Configuration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PACE", 0)
    monkeypatch.setattr(connections, "UNREAD", 0.2)
    app = create_app(session, configuration)
    own = run_api(app, "127.0.0.1", 0)
    try:
        # Nothing else tells the server's socket how little
        # it may keep for a browser that reads nothing.
        own._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        signed_in = visitor(Scope.READ)
        host, cookies = signed_in.base_url.netloc.decode(), "=".join(secret_of(signed_in))
        with (
            socket.socket() as silent,
            httpx.Client(base_url=own.url, headers={"host": host, "cookie": cookies}, **PLAIN) as reader,
        ):
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            silent.connect((own.host, own.port))
            silent.sendall(f"GET /-/live HTTP/1.1\r\nhost: {host}\r\ncookie: {cookies}\r\n\r\n".encode())
            with opened(reader, "/-/live") as events:
                eventually(lambda: app.state.live.pages == 2)

                def is_dropped() -> bool:
                    for _ in range(200):
                        app.state.live.hear(None)
                        assert CHANGED in events
                    return bool(app.state.live.pages == 1)

                eventually(is_dropped)
    finally:
        own.close()
