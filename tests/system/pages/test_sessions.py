"""The browsers in which a person is signed in, and their sign-out: everybody signs out their own,
and an administrator of the installation all.
"""

from __future__ import annotations

import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.queue import sign_ins
from arkqueue.queue.sign_ins import Person
from arkqueue.queue.tokens import Scope, Token
from arkqueue.web.pages.sessions import words_of
from tests.system.pages.conftest import HOSTILE, Visitors, a_token, form_of, said

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1"


@pytest.fixture
def token(session: Session) -> Token:
    return a_token(session, Scope.READ)[0]


def signed_in(visitor: Visitors, session: Session, token: Token, browser: str) -> httpx.Client:
    """A browser that calls itself so, and is signed in with a token."""
    made = visitor()
    made.headers["user-agent"] = browser
    assert made.get("/-/sign-in", params={"code": sign_ins.code(session, token)}).status_code == 303
    return made


def seen(browser: httpx.Client) -> list[tuple[str, str, bool]]:
    groups = browser.get("/-/sessions?format=json").json()["groups"]
    return [(group["whose"], one["browser"], one["is_own"]) for group in groups for one in group["sessions"]]


def end(browser: httpx.Client, which: httpx.Client | str, **more: str) -> httpx.Response:
    """Press the button of a session: that of a browser, or one with an id."""
    page = browser.get("/-/sessions")
    id = which
    if isinstance(which, httpx.Client):
        groups = which.get("/-/sessions?format=json").json()["groups"]
        (id,) = [one["id"] for group in groups for one in group["sessions"] if one["is_own"]]
    fields = {"form": form_of(page), "name": str(id), "back": "/-/sessions"} | more
    return browser.post("/-/act/end-sessions", data=fields)


def is_in(browser: httpx.Client) -> bool:
    return browser.get("/").status_code == 200


def test_somebody_sees_where_they_are_signed_in_and_ends_one(visitor: Visitors, session: Session, token: Token) -> None:
    desk, phone = (signed_in(visitor, session, token, browser) for browser in (FIREFOX, PHONE))
    other = signed_in(visitor, session, a_token(session, Scope.OPERATE)[0], FIREFOX)
    assert seen(desk) == [("read test", PHONE, False), ("read test", FIREFOX, True)]
    words = said(desk.get("/-/sessions"))
    assert "Firefox on Linux this browser" in words
    assert "Safari on an iPhone just now" in words
    assert 'href="/-/sessions"' in desk.get("/").text
    assert end(desk, phone).headers["location"] == "/-/sessions"
    assert (is_in(desk), is_in(phone), is_in(other)) == (True, False, True)


def test_all_others_are_ended_at_once_and_the_own_one_is_a_sign_out(
    visitor: Visitors, session: Session, token: Token
) -> None:
    desk, phone, tablet = (signed_in(visitor, session, token, browser) for browser in (FIREFOX, PHONE, "x"))
    assert "End all others" in said(desk.get("/-/sessions"))
    end(desk, phone, all="yes")
    assert (is_in(desk), is_in(phone), is_in(tablet)) == (True, False, False)
    assert "End all others" not in said(desk.get("/-/sessions"))
    end(desk, desk)
    assert desk.get("/-/sessions").headers["location"].startswith("/-/sign-in")


def test_nobody_ends_or_sees_the_sessions_of_another_token(visitor: Visitors, session: Session, token: Token) -> None:
    desk = signed_in(visitor, session, token, FIREFOX)
    other = signed_in(visitor, session, a_token(session, Scope.ADMIN, "papers")[0], PHONE)
    assert [whose for whose, _, _ in seen(other)] == ["admin test"]
    refused = end(other, desk)
    assert "has ended already, or is not for you to end" in said(refused, 404)
    assert is_in(desk)
    assert end(other, "0" * 64).status_code == 404
    assert end(other, "no id").status_code == 404


def test_who_administers_the_installation_sees_all_and_ends_them(
    visitor: Visitors, session: Session, token: Token
) -> None:
    desk, phone = (signed_in(visitor, session, token, browser) for browser in (FIREFOX, PHONE))
    admin = visitor(Scope.ADMIN)
    assert {whose for whose, _, _ in seen(admin)} == {"read test", "admin test"}
    assert seen(admin)[0][0] == "admin test", "the own ones first"
    end(admin, phone, all="yes")
    assert (is_in(admin), is_in(desk), is_in(phone)) == (True, False, False)
    log = admin.get("/-/audit-log?verb=sign+out&format=json").json()["entries"]
    assert [(entry["by"], entry["note"]) for entry in log] == [("admin test", "2 browsers of read test")]
    assert visitor(Scope.READ).get("/-/audit-log?verb=sign+out&format=json").json()["entries"] == []


def test_sessions_of_persons_are_told_apart_by_their_provider(visitor: Visitors, session: Session) -> None:
    told = {"answer_seconds": 60.0, "seconds": 3600.0}
    for number, (issuer, subject) in enumerate([("https://a", "1"), ("https://a", "1"), ("https://b", "1")]):
        person = Person(issuer, subject, "ann", ("g",), ())
        sign_ins.sign_person_in(session, person, answer=bytes([number]), browser=HOSTILE, **told)
    admin = visitor(Scope.ADMIN)
    page = admin.get("/-/sessions")
    groups = admin.get("/-/sessions?format=json").json()["groups"]
    assert sorted(len(group["sessions"]) for group in groups if group["whose"] == "ann") == [1, 2]
    assert "<script>" not in page.text.partition("<main")[2]
    (two,) = [group["sessions"] for group in groups if len(group["sessions"]) == 2]
    end(admin, two[0]["id"], all="yes")
    groups = admin.get("/-/sessions?format=json").json()["groups"]
    assert [len(group["sessions"]) for group in groups if group["whose"] == "ann"] == [1]


def test_a_form_of_another_site_ends_nothing(visitor: Visitors, session: Session, token: Token) -> None:
    desk, phone = (signed_in(visitor, session, token, browser) for browser in (FIREFOX, PHONE))
    (id,) = re.findall(r'name="name" value="([0-9a-f]{64})"', phone.get("/-/sessions").text)[:1]
    fields = {"name": id, "back": "/"}
    assert desk.post("/-/act/end-sessions", data=fields).status_code == 403
    from_elsewhere = {"sec-fetch-site": "cross-site"}
    fields |= {"form": form_of(desk.get("/-/sessions"))}
    assert desk.post("/-/act/end-sessions", data=fields, headers=from_elsewhere).status_code == 403
    assert is_in(phone)


@pytest.mark.parametrize(
    ("browser", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        (PHONE, "Safari on an iPhone"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/130.0 Safari/537.36 Edg/130.0", "Edge on Windows"),
        ("curl/8.9.1", "curl"),
        ("", "unknown"),
    ],
)
def test_a_browser_is_named_in_a_few_words(browser: str, words: str) -> None:
    assert words_of(browser) == words
