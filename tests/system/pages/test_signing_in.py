"""Who may see pages: links that work once, tokens, cookies, forms of other sites, foreign hosts."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import sign_ins, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, create_app, run_api
from tests.builders import an_archive
from tests.system.pages.conftest import Visitors, a_token, form_of, press, said, secret_of
from tests.system.web.conftest import PLAIN


@pytest.fixture
def configuration(tmp_path: Path, request: pytest.FixtureRequest) -> Configuration:
    """A configuration in which the archives of the parameter, if there is one, are public."""
    return Configuration(home=tmp_path / "home", hosts=("queue.example.org",), public=getattr(request, "param", ()))


def test_a_link_signs_one_browser_in_once(visitor: Visitors, session: Session) -> None:
    token, _ = a_token(session, Scope.READ)
    code = sign_ins.code(session, token)
    first, second = visitor(), visitor()
    assert first.get("/-/sign-in", params={"code": code}).headers["location"] == "/"
    assert first.get("/").status_code == 200
    again = second.get("/-/sign-in", params={"code": code})
    assert again.status_code == 403
    assert "has been used already" in again.text
    assert second.get("/").status_code == 303


def test_a_program_that_checks_a_link_does_not_use_it_up(visitor: Visitors, session: Session) -> None:
    code = sign_ins.code(session, a_token(session, Scope.READ)[0])
    checked = visitor().head("/-/sign-in", params={"code": code})
    assert (checked.status_code, checked.headers.get("set-cookie")) == (200, None)
    assert visitor().get("/-/sign-in", params={"code": code}).headers["location"] == "/"


def test_a_sign_in_ends_the_one_that_the_browser_had(visitor: Visitors, session: Session) -> None:
    token, secret = a_token(session, Scope.READ)
    browser = visitor(Scope.READ)
    for sign_in in (
        lambda: browser.get("/-/sign-in", params={"code": sign_ins.code(session, token)}),
        lambda: browser.post("/-/sign-in", data={"token": secret}),
    ):
        _, before = secret_of(browser)
        assert sign_in().status_code == 303
        assert sign_ins.check(session, before) is None
    assert browser.get("/").status_code == 200


def test_a_browser_is_signed_in_at_two_servers_of_a_host(
    visitor: Visitors, session: Session, configuration: Configuration
) -> None:
    _, secret = a_token(session, Scope.READ)
    browser = visitor(Scope.READ)
    first, other = str(browser.base_url), run_api(create_app(session, configuration), "127.0.0.1", 0)
    try:
        assert browser.get(f"{other.url}/").status_code == 303, "a sign-in is for one server"
        assert browser.post(f"{other.url}/-/sign-in", data={"token": secret}).status_code == 303
        for url in (first, other.url):
            assert browser.get(url).status_code == 200
        form = form_of(browser.get(f"{other.url}/"))
        assert browser.post(f"{other.url}/-/sign-out", data={"form": form}).status_code == 303
        assert [browser.get(url).status_code for url in (first, other.url)] == [200, 303]
    finally:
        other.close()


def test_a_refused_sign_in_keeps_the_page_that_was_asked_for(visitor: Visitors, session: Session) -> None:
    token, _ = a_token(session, Scope.READ)
    wanted = "/papers?state=failed"
    sign_in = 'href="/-/sign-in?next=%2Fpapers%3Fstate%3Dfailed"'
    browser = visitor()
    used = browser.get("/-/sign-in", params={"code": "used", "next": wanted})
    assert used.status_code == 403
    assert sign_in in used.text
    unknown = browser.post("/-/sign-in", data={"token": "ark_unknown", "next": wanted})
    assert f'name="next" value="{wanted}"' in unknown.text
    elsewhere = {"sec-fetch-site": "cross-site"}
    assert sign_in in browser.post("/-/sign-in", data={"token": "x", "next": wanted}, headers=elsewhere).text
    for target in ("https://evil.example", "//evil.example"):
        refused = browser.get("/-/sign-in", params={"code": "used", "next": target})
        assert 'href="/-/sign-in?next=%2F"' in refused.text
    code = sign_ins.code(session, token)
    assert browser.get("/-/sign-in", params={"code": code, "next": wanted}).headers["location"] == wanted


@pytest.mark.parametrize("configuration", [(), ("papers",)], indirect=True)
def test_who_is_signed_out_while_a_form_is_open_is_led_back_to_its_page(
    visitor: Visitors, session: Session, configuration: Configuration
) -> None:
    """Also where anybody may read the archive: who sends a form wants more than to read."""
    an_archive(session).commit({"a": ""})
    browser = visitor(Scope.OPERATE)
    form = form_of(browser.get("/papers"))
    browser.cookies.clear()
    for address in ("/-/act", "/-/act/set-lock"):
        fields = {"form": form, "name": "papers", "verb": "pause", "back": "/papers?state=failed"}
        answer = browser.post(address, data=fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/-/sign-in?next=%2Fpapers%3Fstate%3Dfailed")
        answer = browser.post(address, data=fields | {"back": "//evil.example"})
        assert answer.headers["location"] == "/-/sign-in?next=%2F"
    answer = browser.post("/-/submit/papers", files={"file": ("a.json", b"[]")})
    assert answer.headers["location"] == "/-/sign-in?next=%2F-%2Fsubmit%2Fpapers"
    foreign = browser.post("/-/act", data={"back": "/papers"}, headers={"sec-fetch-site": "cross-site"})
    assert foreign.status_code == (403 if configuration.public else 303)


def test_a_link_that_nobody_used_expires(visitor: Visitors, session: Session) -> None:
    token, _ = a_token(session, Scope.READ)
    code = sign_ins.code(session, token)
    with session.database.statement() as connection:
        connection.execute("update sign_in set expires_at = expires_at - %s", [timedelta(seconds=sign_ins.LINK)])
    assert visitor().get("/-/sign-in", params={"code": code}).status_code == 403


def test_a_command_prints_a_link_with_the_rights_of_its_token(
    visitor: Visitors, session: Session, server: ApiServer
) -> None:
    an_archive(session, "papers")
    an_archive(session, "secret")
    _, secret = a_token(session, Scope.READ, "papers")
    made = httpx.post(f"{server.url}/api/v1/sign-in-links", headers={"authorization": f"Bearer {secret}"}, **PLAIN)
    browser = visitor()
    browser.get(made.json()["path"])
    assert "papers" in browser.get("/").text
    assert "secret" not in browser.get("/").text
    assert browser.get("/secret").status_code == 404


def test_a_token_signs_in_and_leads_to_the_page_that_was_asked_for(visitor: Visitors, session: Session) -> None:
    an_archive(session)
    _, secret = a_token(session, Scope.READ)
    browser = visitor()
    asked = browser.get("/papers?state=failed")
    assert asked.headers["location"] == "/-/sign-in?next=%2Fpapers%3Fstate%3Dfailed"
    assert 'name="next" value="/papers?state=failed"' in browser.get(asked.headers["location"]).text
    signed_in = browser.post("/-/sign-in", data={"token": secret, "next": "/papers?state=failed"})
    assert signed_in.headers["location"] == "/papers?state=failed"
    cookie = signed_in.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert secret not in cookie


def test_behind_a_proxy_with_tls_the_cookie_is_for_https_alone_and_links_begin_with_it(
    session: Session, configuration: Configuration
) -> None:
    an_archive(session)
    _, secret = a_token(session, Scope.READ)
    public = configuration.model_copy(update={"public_url": "https://queue.example.org"})
    server = run_api(create_app(session, public), "127.0.0.1", 0)
    try:
        for host, is_secure in (("queue.example.org", True), ("127.0.0.1", False)):
            with httpx.Client(base_url=server.url, headers={"host": host}, **PLAIN) as browser:
                signed_in = browser.post("/-/sign-in", data={"token": secret})
                assert ("Secure" in signed_in.headers["set-cookie"]) == is_secure
                cookie = signed_in.headers["set-cookie"].partition(";")[0]
                feed = browser.get("/papers?format=atom", headers={"cookie": cookie}).text
                assert f'href="{"https" if is_secure else "http"}://{host}' in feed
    finally:
        server.close()


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_a_sign_in_leads_to_no_other_site(visitor: Visitors, session: Session, target: str) -> None:
    _, secret = a_token(session, Scope.READ)
    assert visitor().post("/-/sign-in", data={"token": secret, "next": target}).headers["location"] == "/"


def test_unknown_tokens_and_those_of_hooks_sign_nobody_in(visitor: Visitors, session: Session) -> None:
    _, secret = a_token(session, Scope.HOOK)
    browser = visitor()
    for given, words in (("ark_unknown", "unknown or revoked"), (secret, "shows no pages")):
        answer = browser.post("/-/sign-in", data={"token": given})
        assert answer.status_code == 403
        assert words in answer.text
    assert not browser.cookies


def test_a_sign_in_ends_with_its_token_and_at_sign_out(visitor: Visitors, session: Session) -> None:
    browser = visitor(Scope.READ)
    other = visitor(Scope.READ)
    for token in tokens.tokens(session)[:1]:
        tokens.revoke(session, token.id, "test")
    assert browser.get("/").status_code == 303
    form, cookies = form_of(other.get("/")), dict(other.cookies)
    assert other.post("/-/sign-out", data={"form": form}).status_code == 303
    other.cookies.update(cookies)  # who kept the cookie has nothing of it
    assert other.get("/").status_code == 303


def test_a_sign_in_lasts_for_thirty_days(visitor: Visitors, session: Session) -> None:
    browser = visitor(Scope.OPERATE)
    archive = an_archive(session)
    archive.commit({"a": ""})
    form = form_of(browser.get("/papers@2"))
    archive.sql("update sign_in set expires_at = expires_at - interval '29 days 23 hours'")
    assert browser.get("/papers@2").status_code == 200
    archive.sql("update sign_in set expires_at = expires_at - interval '1 hour'")
    assert browser.get("/papers@2").headers["location"] == "/-/sign-in?next=%2Fpapers%402"
    assert browser.get("/-/live?of=papers").status_code == 204, "an open page does not connect again"
    sent = browser.post("/-/act", data={"form": form, "name": "papers@2/a", "verb": "hold", "back": "/papers@2"})
    assert sent.headers["location"].startswith("/-/sign-in")
    assert archive.state("a@2") == "ready"
    visitor(Scope.READ)
    assert len(archive.sql("select hash from sign_in where not once")) == 1, "what has expired is removed"


def test_a_form_of_another_site_does_nothing(visitor: Visitors, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    browser = visitor(Scope.OPERATE)
    fields = {"name": "papers@2/a", "verb": "cancel", "back": "/", "sure": "yes"}
    for form in ({}, {"form": "0" * 64}, {"form": form_of(visitor(Scope.OPERATE).get("/"))}):
        assert browser.post("/-/act", data=fields | form).status_code == 403
    own = form_of(browser.get("/"))
    other = form_of(browser.get("/papers"))
    mixed = own[:16] + other[16:]
    assert browser.post("/-/act", data=fields | {"form": mixed}).status_code == 403
    from_elsewhere = {"sec-fetch-site": "cross-site"}
    assert browser.post("/-/act", data=fields | {"form": own}, headers=from_elsewhere).status_code == 403
    assert archive.state("a@2") == "ready"
    # A browser sends no cookie with the form of another site, but does what the answer says with it.
    for headers in (from_elsewhere, {}):
        answer = visitor().post("/-/sign-out", headers=headers)
        assert "set-cookie" not in answer.headers, "another site signs the browser out"
    assert browser.post("/-/act", data=fields | {"form": own}).status_code == 303
    assert archive.state("a@2") == "canceled"


def test_a_browser_that_was_led_here_under_a_foreign_name_is_refused(visitor: Visitors, session: Session) -> None:
    browser = visitor()
    _, secret = a_token(session, Scope.READ)
    for host, status in (
        ("evil.example", 421),
        ("127.0.0.1:8080.evil.example", 421),
        ("127.0.0.1:8080@evil.example", 421),
        ("evil.example@127.0.0.1", 421),
        ("queue.example.org", 200),
        ("localhost:8417", 200),
        ("[::1]:8417", 200),
    ):
        asked = {"host": host, "authorization": f"Bearer {secret}"}
        assert browser.get("/", headers=asked).status_code == status, host
    long = browser.get("/-/openid", headers={"host": "\x7fx" * 1000}).text
    assert "\x7f" not in long
    assert long.count("\\x7f") < 300, "the whole name is repeated"


def test_who_may_look_has_no_buttons_and_cannot_act(visitor: Visitors, session: Session) -> None:
    archive = an_archive(session)
    archive.commit({"a": ""})
    archive.fail("a@2")
    reader = visitor(Scope.READ)
    for page in ("/", "/papers", "/papers@2", "/papers@2/a"):
        assert 'action="/-/act"' not in reader.get(page).text
    refused = press(reader, "/papers@2/a", "papers@2/a", "retry")
    assert refused.status_code == 403
    assert archive.state("a@2") == "failed"


def test_a_form_without_end_is_refused(visitor: Visitors) -> None:
    browser = visitor(Scope.OPERATE)
    for address in ("/-/act", "/-/sign-in", "/-/sign-out"):
        answer = browser.post(address, data={f"field {number}": "x" for number in range(2001)})
        assert answer.status_code == 422, address
        assert "more than 2,000 fields" in answer.text
    long = browser.post("/-/act", data={"text": "x" * (1 << 20)}, headers={"accept": "text/html"})
    assert "is longer than 1048576 bytes" in said(long, 413)


@pytest.mark.parametrize("accept", ["text/html", "*/*"])
def test_a_form_without_end_in_pieces_is_refused_as_too_long(
    server: ApiServer, caplog: pytest.LogCaptureFixture, accept: str
) -> None:
    for address in ("/-/sign-in", "/-/act", "/-/act/lock", "/-/sign-out"):
        pieces = (b"x" * 65536 for _ in range(17))
        answer = httpx.post(server.url + address, content=pieces, headers={"accept": accept}, **PLAIN)
        assert answer.status_code == 413, address
    assert not caplog.records


def test_who_leaves_in_the_midst_of_a_form_or_a_submission_is_no_mistake(
    server: ApiServer, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    an_archive(session, "papers")
    _, secret = a_token(session, Scope.OPERATE)
    head = f"Host: localhost\r\nAuthorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
    head += "Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"
    submissions = "/api/v1/archives/papers/submissions"
    for address in ("/-/sign-in", "/-/act", "/-/act/lock", "/-/sign-out", submissions):
        with socket.create_connection((server.host, server.port), timeout=30) as connection:
            connection.sendall(f"POST {address} HTTP/1.1\r\n{head}".encode())
            assert connection.recv(12) == b"HTTP/1.1 100"  # the server reads it now
            connection.sendall(b"half")
    server.close()  # after the requests have ended
    assert not caplog.records


def test_an_address_that_is_none_is_no_mistake(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection((server.host, server.port), timeout=30) as connection:
        connection.sendall(b"GET * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 404"
    assert not caplog.records
