"""The real server with its pages, and browsers that are signed in."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import sign_ins, tokens
from arkqueue.queue.tokens import Scope, Token
from arkqueue.web import ApiServer
from arkqueue.web.pages.visitor import COOKIE
from tests.browsers import a_browser
from tests.system.web.conftest import PLAIN, server

__all__ = ["server"]

Visitors = Callable[..., httpx.Client]
HOSTILE = "<script>alert(1)</script> \x1b[31mred\x1b[0m \u202egnp.exe \x07"
HOSTILE_ITEM = "<img src=x onerror=alert(1)>"


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return Configuration(home=tmp_path / "home", hosts=("queue.example.org",))


def a_token(session: Session, scope: Scope, *archives: str) -> tuple[Token, str]:
    return tokens.create(session, name=f"{scope} test", scope=scope, archives=archives or None, by="test")


def stay_alive(session: Session) -> None:
    """Keeps the registered task managers alive for a slow test. Pages call a task manager silent 30 s
    after its last report, and tests have none that reports.
    """
    with session.database.statement() as connection:
        connection.execute(b"update task_manager set seen_at = clock_timestamp() + interval '1 hour'")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser, without a page."""
    with a_browser() as browser:
        yield browser


@pytest.fixture
def visitor(server: ApiServer, session: Session) -> Iterator[Visitors]:
    """Makes browsers: ``visitor(Scope.READ, "papers")`` is signed in with a token of that scope,
    ``visitor()`` is not signed in.
    """
    made: list[httpx.Client] = []

    def make(scope: Scope | None = None, *archives: str) -> httpx.Client:
        browser = httpx.Client(base_url=server.url, **PLAIN)
        made.append(browser)
        if scope is not None:
            token, _ = a_token(session, scope, *archives)
            signed_in = browser.get("/-/sign-in", params={"code": sign_ins.code(session, token)})
            assert signed_in.status_code == 303, signed_in.text
        return browser

    yield make
    for browser in made:
        browser.close()


def secret_of(browser: httpx.Client) -> tuple[str, str]:
    """The name and the value of the cookie with which a browser is signed in."""
    (found,) = [(name, value) for name, value in browser.cookies.items() if name.startswith(f"{COOKIE}-")]
    return found


@pytest.fixture
def reader(visitor: Visitors) -> httpx.Client:
    return visitor(Scope.READ)


@pytest.fixture
def operator(visitor: Visitors) -> httpx.Client:
    return visitor(Scope.OPERATE)


@pytest.fixture
def admin(visitor: Visitors) -> httpx.Client:
    return visitor(Scope.ADMIN)


def form_of(page: httpx.Response) -> str:
    """The hidden value that the forms of a page carry."""
    found = re.search(r'name="form" value="([0-9a-f]{64})"', page.text)
    assert found, page.text
    return found[1]


def press(browser: httpx.Client, page: str, name: str, verb: str, text: str = "", sure: str = "yes") -> httpx.Response:
    """Presses a button of a page, and then the button below the consequences. An empty ``sure``
    presses only the first one.
    """
    fields = {"form": form_of(browser.get(page)), "name": name, "verb": verb, "text": text, "back": page, "sure": sure}
    return browser.post("/-/act", data=fields)


def first(browser: httpx.Client, name: str, verb: str) -> httpx.Response:
    """The page that a button shows before anything changes."""
    return press(browser, f"/{name}", name, verb, sure="")


def confirm(browser: httpx.Client, page: httpx.Response) -> httpx.Response:
    """Presses the button below the consequences. Sends the texts in the form as they are."""
    (form,) = [form for form in re.findall(r"<form.*?</form>", page.text, re.S) if 'name="sure" value="yes"' in form]
    action = re.findall(r'action="([^"]*)"', form)[0]
    fields = re.findall(
        r'<(?:input type="(?:hidden|text)"|button class="b do") name="(\w+)"[^>]*? value="([^"]*)"', form
    )
    body: dict[str, list[str]] = {}
    for name, value in fields:
        body.setdefault(name, []).append(value)
    return browser.post(action, data=body)


def pressed(browser: httpx.Client, page: httpx.Response, words: str, **typed: str) -> httpx.Response:
    """Presses a button of a page, as a browser does: sends the fields of its form, and its own.
    ``typed``: what a person writes in the fields.
    """
    found = re.search(rf"<button ([^>]*)>{re.escape(words)}</button>", page.text)
    assert found, page.text
    own = dict(re.findall(r'([\w-]+)="([^"]*)"', found[1]))
    forms = re.finditer(r"<form [^>]*>.*?</form>", page.text, re.S)
    if "form" in own:
        (form,) = [form[0] for form in forms if f'id="{own["form"]}"' in form[0]]
    else:
        (form,) = [form[0] for form in forms if form.start() < found.start() < form.end()]
    fields = re.findall(r'<input type="(?:hidden|text)" name="(\w+)"[^>]*? value="([^"]*)"', form)
    sent = {name: html.unescape(value) for name, value in fields} | typed
    action = re.findall(r'action="([^"]*)"', form)[0]
    return browser.post(action, data=sent | ({own["name"]: own["value"]} if "name" in own else {}))


def said(page: httpx.Response, status: int = 200) -> str:
    """The text of a page with this status, without markup."""
    assert page.status_code == status, page.text
    return " ".join(re.sub(r"<[^>]*>", " ", page.text.partition("<main")[2].partition(">")[2]).split())
