"""Persons sign in with a provider of OpenID Connect: a real one, over HTTP, which is right, wrong,
slow or away as the test says.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import OctKey, RSAKey

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import Configuration
from arkqueue.config.openid import OpenId
from arkqueue.db.session import Session
from arkqueue.queue import archives, notifications, sign_ins
from arkqueue.queue.locks import pass_on
from arkqueue.queue.sign_ins import Person
from arkqueue.queue.tokens import Scope
from arkqueue.web import ApiServer, create_app, openid, run_api
from tests.browsers import a_browser
from tests.builders import an_archive
from tests.db.outbox import set_receivers
from tests.openid_provider import CLIENT, SECRET, OpenIdProvider, a_provider
from tests.ports import a_port
from tests.system.pages.conftest import Visitors, a_token, form_of, press, secret_of
from tests.system.web.conftest import PLAIN

GRANTS = (
    {"group": "readers", "scope": "read"},
    {"group": "editors", "scope": "operate", "archives": ["papers"]},
    {"group": "reviewers", "scope": "approve", "archives": ["pa*"]},
)
DEEP = base64.urlsafe_b64encode(b"[" * 3000).decode()
"""JSON with more levels than the parser of Python reads."""
Begin = Callable[[httpx.Client], httpx.Response]


@pytest.fixture
def provider() -> Iterator[OpenIdProvider]:
    with a_provider() as provider:
        for name, groups in (("ann", ["readers", "editors"]), ("ben", ["others"]), ("cleo", ["reviewers"])):
            provider.people[name] = {"preferred_username": name, "groups": groups}
        yield provider


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "openid-secret"
    path.touch(0o600)
    path.write_text(f"{SECRET}\n")
    return path


@pytest.fixture
def configuration(
    tmp_path: Path, provider: OpenIdProvider, secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Configuration]:
    # The provider speaks no TLS. To load the machine's authorities takes longer than a sign-in.
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("SSL_CERT_DIR", os.devnull)
    with a_port() as port:
        told = {
            "issuer": provider.url,
            "client_id": CLIENT,
            "client_secret_file": secret_file,
            "label": "the university",
            "grants": GRANTS,
            "persons": ({"person": "cleo", "authors": ("Cleo <cleo@example.org>",)},),
        }
        url = f"http://127.0.0.1:{port}"
        provider.client.redirect_uris.append(f"{url}/-/openid/return")
        yield Configuration(home=tmp_path / "home", listen=f"127.0.0.1:{port}", public_url=url, openid=OpenId(**told))


@pytest.fixture
def server(session: Session, configuration: Configuration, no_queue_manager: None) -> Iterator[ApiServer]:  # noqa: ARG001  it sets
    server = run_api(create_app(session, configuration), "127.0.0.1", configuration.port)
    yield server
    server.close()


def begin(browser: httpx.Client, target: str = "/") -> httpx.Response:
    """Go to the provider's page."""
    sent = browser.get("/-/openid", params={"next": target})
    assert sent.status_code == 303, sent.text
    return httpx.get(sent.headers["location"], **PLAIN)


def come_back(at_provider: httpx.Response, person: str) -> str:
    """Be somebody at the provider; returns where the provider sends the browser."""
    sent = httpx.get(f"{at_provider.url}&as={person}", **PLAIN)
    assert sent.status_code == 302, sent.text
    return str(sent.headers["location"])


def sign_in(browser: httpx.Client, person: str, target: str = "/") -> httpx.Response:
    return browser.get(come_back(begin(browser, target), person))


def test_a_person_signs_in_and_sees_what_their_groups_may(visitor: Visitors, session: Session) -> None:
    an_archive(session, "papers")
    an_archive(session, "books")
    browser = visitor()
    assert 'href="/-/openid?next=%2Fpapers"' in browser.get("/-/sign-in?next=/papers").text
    signed_in = sign_in(browser, "ann", "/papers?state=failed")
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/papers?state=failed")
    cookie = next(text for text in signed_in.headers.get_list("set-cookie") if text.startswith("arkqueue-"))
    assert all(word in cookie for word in ("HttpOnly", "SameSite=lax", "Max-Age=43200"))
    assert "ann (openid)" in browser.get("/papers").text
    # An editor of one archive, a reader of the other.
    assert press(browser, "/papers", "papers", "pause").status_code == 303
    refused = browser.post(
        "/-/act", data={"form": form_of(browser.get("/papers")), "name": "books", "verb": "pause", "back": "/"}
    )
    assert refused.status_code == 403
    assert "has the scope read" in refused.text
    assert "[[openid.grants]]" in refused.text
    assert "token create" not in refused.text, "no token gives a person anything"
    assert 'name="verb" value="pause"' not in browser.get("/books").text
    assert "An administrator names your authors in <code>[[openid.persons]]" in browser.get("/-/mine").text
    assert "ann (openid) · operate" in browser.get("/-/trigger?of=papers").text
    assert "ann (openid) · read" in browser.get("/-/trigger?of=books").text
    assert (
        session.rows("audit_log", archives=None, by="ann", verb="pause", before=None, hidden=True, limit=9)[0].by
        == "ann (openid)"
    )


def test_a_person_acts_on_the_pages_of_the_installation_as_their_groups_may(
    visitor: Visitors, session: Session
) -> None:
    receiver = "https://hooks.example.org/ci"
    for name in ("papers", "books"):
        archive = an_archive(session, name)
        set_receivers(archive, **{receiver: ["failed"]})
        archive.commit({"index": ""})
        archive.fail("index@2")
        archive.commit({"index": 'schedule: "0 3 * * *"\nlock: [tex]\non: [commit, schedule]'})
        archive.claim("index@3")
    notifications.judge(session)
    browser = visitor()
    sign_in(browser, "ann")
    for page, of_papers, of_books in (
        ("/-/locks", ">papers/tex<", ">books/tex<"),
        ("/-/schedules", 'href="/papers"', 'href="/books"'),
        ("/-/notifications", 'href="/papers@2"', 'href="/books@2"'),
    ):
        rows = re.findall(r"<tr.*?</tr>", browser.get(page).text, re.S)
        assert ["<button" in row for row in rows if of_papers in row] == [True], page
        assert ["<button" in row for row in rows if of_books in row] == [False], page
    assert "Set a lock" in browser.get("/-/locks").text
    ids = {one["name"]: one["id"] for one in browser.get("/-/notifications?format=json").json()["deliveries"]}
    form = {"form": form_of(browser.get("/-/notifications")), "back": "/-/notifications"}
    assert browser.post("/-/act/resend", data={**form, "name": ids["books@2"]}).status_code == 403
    assert browser.post("/-/act/resend", data={**form, "name": ids["papers@2"]}).status_code == 303
    assert browser.post("/-/act/set-lock", data={**form, "name": "papers/tex", "capacity": "2"}).status_code == 303


def test_a_wait_names_what_the_person_may_see_elsewhere(visitor: Visitors, session: Session) -> None:
    books, papers = an_archive(session, "books"), an_archive(session, "papers")
    books.commit({"scan": "lock: [global/tape]"})
    while pass_on(session):
        pass
    books.claim("scan@2")
    papers.commit({"index": "lock: [global/tape]"})
    browser = visitor()
    sign_in(browser, "ann")
    assert 'href="/books@2/scan"' in browser.get("/papers@2/index").text
    sign_in(browser, "cleo")
    page = browser.get("/papers@2/index").text
    assert "global/tape" in page
    assert "books" not in page


def test_a_grant_for_an_archive_that_does_not_exist_names_no_other(
    visitor: Visitors, session: Session, provider: OpenIdProvider
) -> None:
    provider.people["dan"] = {"preferred_username": "dan", "groups": ["editors"]}
    an_archive(session, "papers-of-others")
    browser = visitor()
    sign_in(browser, "dan")
    for page in ("/papers", "/papers@1", "/-/settings/papers", "/-/trigger?of=papers", "/-/audit-log?archive=papers"):
        refused = browser.get(page)
        assert refused.status_code == 404
        assert "papers-of-others" not in refused.text
    assert "does not exist, or you may not see it" in browser.get("/papers").text, "a person has no token"


def test_a_sign_in_asks_with_pkce_state_and_nonce_that_no_other_sign_in_has(visitor: Visitors) -> None:
    asked = [parse_qs(urlsplit(visitor().get("/-/openid").headers["location"]).query) for _ in range(2)]
    for one in asked:
        assert one["response_type"] == ["code"]
        assert one["code_challenge_method"] == ["S256"]
        assert "openid" in one["scope"][0]
    for name in ("state", "nonce", "code_challenge"):
        assert asked[0][name] != asked[1][name]


def test_who_is_in_no_group_that_may_is_told_so(visitor: Visitors) -> None:
    refused = sign_in(visitor(), "ben")
    assert refused.status_code == 403
    assert "says that ben is in no group that may see these pages (of these: others)" in refused.text
    assert "Sign in again" in refused.text
    assert 'href="/-/openid/leave">Sign in as somebody else</a>' in refused.text


def test_who_says_no_to_the_provider_is_told_so(visitor: Visitors) -> None:
    refused = sign_in(visitor(), "nobody")
    assert refused.status_code == 403
    assert "was refused by the provider: access_denied" in refused.text
    refused = sign_in(visitor(), "nobody", "/papers?state=failed")
    assert 'href="/-/sign-in?next=%2Fpapers%3Fstate%3Dfailed"' in refused.text


def test_groups_may_be_in_the_user_info_alone(visitor: Visitors, provider: OpenIdProvider) -> None:  # fmt: skip
    provider.in_userinfo.add("groups")
    browser = visitor()
    assert sign_in(browser, "ann").status_code == 303
    assert "/userinfo" in provider.asked


def wrong_sub(claims: dict[str, Any]) -> None:
    claims["sub"] = "sub-eve"


def signed_by_another(claims: dict[str, Any]) -> None:
    claims["key"] = RSAKey.generate_key(2048)


def signed_with_the_secret(claims: dict[str, Any]) -> None:
    claims["header"], claims["key"] = {"alg": "HS256"}, OctKey.import_key(SECRET)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda claims: claims.update(iss="https://evil.example"), "of another provider, or for another client (iss)"),
        (lambda claims: claims.update(iss=None), "of another provider, or for another client (iss)"),
        (lambda claims: claims.update(aud="another"), "of another provider, or for another client (aud)"),
        (
            lambda claims: claims.update(aud=[CLIENT, "another"], azp="another"),
            "of another provider, or for another client (azp)",
        ),
        (lambda claims: claims.update(nonce="another"), "of another sign-in (nonce)"),
        (lambda claims: claims.update(nonce=None), "of another sign-in (nonce)"),
        (lambda claims: claims.update(exp=time.time() - 120), "not of this time"),
        (lambda claims: claims.update(exp=None), "not of this time"),
        (lambda claims: claims.update(iat=time.time() + 120), "not of this time"),
        (lambda claims: claims.update(at_hash="x"), "cannot be used"),
        (lambda claims: claims.update(sub=None), "cannot be used"),
        (lambda claims: claims.update(groups="editors"), ""),
        (lambda claims: claims.update(groups=7), "names no groups of ann"),
        (lambda claims: claims.update(preferred_username="a\nb"), "names nobody"),
        (signed_by_another, "has not signed"),
        (signed_with_the_secret, "has not signed"),
    ],
)
def test_an_id_token_that_is_not_for_this_sign_in_signs_nobody_in(visitor: Visitors, provider: OpenIdProvider, spoil: Callable[[dict[str, Any]], None], said: str) -> None:  # fmt: skip
    provider.spoil = spoil
    browser = visitor()
    answer = sign_in(browser, "ann")
    if not said:
        assert answer.status_code == 303
        return
    assert answer.status_code == 403, answer.text
    assert said in answer.text
    # The provider would name the same person again.
    assert ("Sign in as somebody else" in answer.text) == said.startswith("names no")
    assert browser.get("/").status_code == 303


def test_clocks_may_differ_a_little(visitor: Visitors, provider: OpenIdProvider) -> None:
    provider.spoil = lambda claims: claims.update(iat=time.time() + 40, exp=time.time() + 340)
    assert sign_in(visitor(), "ann").status_code == 303
    provider.spoil = lambda claims: claims.update(exp=time.time() - 40)
    assert sign_in(visitor(), "ann").status_code == 303


def test_new_keys_of_the_provider_are_fetched_when_it_signs_with_one(
    visitor: Visitors, provider: OpenIdProvider
) -> None:
    assert sign_in(visitor(), "ann").status_code == 303
    assert sign_in(visitor(), "ann").status_code == 303
    assert provider.asked.count("/keys") == 1
    provider.rotate()
    assert sign_in(visitor(), "ann").status_code == 303
    assert provider.asked.count("/keys") == 2


def test_user_info_of_somebody_else_signs_nobody_in(visitor: Visitors, provider: OpenIdProvider) -> None:
    provider.in_userinfo.add("groups")
    provider.spoil = wrong_sub
    assert "got the user info of somebody else" in sign_in(visitor(), "ann").text


def test_an_answer_signs_one_browser_in_once(visitor: Visitors) -> None:
    browser, thief = visitor(), visitor()
    location = come_back(begin(browser), "ann")
    stolen = thief.get(location)
    assert stolen.status_code == 403
    assert "was not begun in this browser" in stolen.text
    begin(thief)
    assert "the state of another one" in thief.get(location).text
    cookies = dict(browser.cookies)
    assert browser.get(location).status_code == 303
    browser.cookies.update(cookies)  # which its own answer took away
    again = browser.get(location)
    assert again.status_code == 403
    assert "has been used already" in again.text
    assert thief.get("/").status_code == 303


def test_two_answers_at_once_sign_in_once(visitor: Visitors, provider: OpenIdProvider, server: ApiServer) -> None:
    browser = visitor()
    location = come_back(begin(browser), "ann")
    found: list[int] = []

    def answer() -> None:
        with httpx.Client(base_url=server.url, cookies=browser.cookies, **PLAIN) as other:
            found.append(other.get(location).status_code)

    threads = [threading.Thread(target=answer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(303) == 1
    assert provider.asked.count("/token") >= 1


def test_two_tabs_of_a_browser_sign_in_beside_each_other(visitor: Visitors) -> None:
    browser = visitor()
    first, second = begin(browser, "/first"), begin(browser, "/second")
    location = come_back(first, "ann")
    cookies = dict(browser.cookies)
    assert browser.get(location).headers["location"] == "/first"
    browser.cookies.update(cookies)
    assert browser.get(come_back(second, "ann")).headers["location"] == "/second"


@pytest.mark.parametrize("target", ["//evil.example", "/" + "x" * 2000])
def test_a_sign_in_leads_to_no_other_site(visitor: Visitors, target: str) -> None:
    assert sign_in(visitor(), "ann", target).headers["location"] == "/"


def test_a_state_that_somebody_wrote_is_worth_nothing(visitor: Visitors) -> None:
    browser = visitor()
    at_provider = begin(browser)
    location = come_back(at_provider, "ann")
    state = parse_qs(urlsplit(location).query)["state"][0]
    said, _, proof = state.partition(".")
    for forged in (
        "",
        ".",
        f"{said}.",
        f"{said[:-4]}AAAA.{proof}",
        f"{said}.ü",
        DEEP,
        "x" * 5000,
        "\ud800".encode("utf-8", "surrogatepass"),
    ):
        refused = browser.get("/-/openid/return", params={"code": "x", "state": forged})
        assert refused.status_code == 403, forged
        assert "the state of another one" in refused.text
        assert 'href="/-/sign-in?next=%2F"' in refused.text


@pytest.mark.parametrize(
    "written",
    ["x", "7", "[7]", "{}", '["7", "", "/"]', '[7, "", 7]', '[7, "", null]', "[" * 2000, f'[{"9" * 2000}, "", "/"]'],
)
def test_a_state_that_a_program_wrote_for_a_secret_of_its_own_is_no_mistake(visitor: Visitors, written: str) -> None:
    secret = "x" * 43
    said = base64.urlsafe_b64encode(written.encode()).decode()
    digest = hmac.digest(secret.encode(), f"state {said}".encode(), "sha256")
    proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    program = visitor()
    program.cookies.set("arkqueue_openid", secret)
    refused = program.get("/-/openid/return", params={"code": "x", "state": f"{said}.{proof}"})
    assert refused.status_code == 403
    assert 'href="/-/sign-in?next=%2F"' in refused.text


def test_an_answer_of_another_provider_is_refused(visitor: Visitors, provider: OpenIdProvider) -> None:
    browser = visitor()
    location = come_back(begin(browser), "ann")
    mixed_up = browser.get(location.replace(f"&iss={provider.url}", "&iss=https://evil.example"))
    assert "was answered by https://evil.example" in mixed_up.text
    assert "/token" not in provider.asked  # which would have told the code to whom it does not belong
    assert "was answered by nobody" in browser.get(location.replace(f"&iss={provider.url}", "")).text
    assert browser.get(location).status_code == 303


def test_a_code_of_somebody_elses_sign_in_is_refused(visitor: Visitors) -> None:
    victim, attacker = visitor(), visitor()
    begun = come_back(begin(victim), "ann")
    code = parse_qs(urlsplit(come_back(begin(attacker), "cleo")).query)["code"][0]
    theirs = parse_qs(urlsplit(begun).query)
    injected = victim.get(
        "/-/openid/return", params={"code": code, "state": theirs["state"][0], "iss": theirs["iss"][0]}
    )
    assert injected.status_code == 403
    assert "was refused by" in injected.text  # PKCE: the code belongs to another verifier
    assert victim.get("/").status_code == 303


def test_a_session_ends_with_the_entry_that_gave_its_rights(visitor: Visitors, session: Session, server: ApiServer, configuration: Configuration) -> None:  # fmt: skip
    an_archive(session, "papers")
    browser = visitor()
    sign_in(browser, "cleo")
    assert browser.get("/papers").status_code == 200
    assert configuration.openid is not None
    server.close()
    without = configuration.openid.model_copy(update={"grants": configuration.openid.grants[:2]})
    other = run_api(
        create_app(session, configuration.model_copy(update={"openid": without})), "127.0.0.1", configuration.port
    )
    try:
        assert browser.get("/papers").headers["location"].startswith("/-/sign-in")
    finally:
        other.close()


def test_a_session_expires(visitor: Visitors, session: Session) -> None:
    browser = visitor()
    sign_in(browser, "ann")
    assert browser.get("/").status_code == 200
    with session.database.statement() as connection:
        connection.execute("update sign_in set expires_at = clock_timestamp()")
    assert browser.get("/").status_code == 303


def test_signing_out_ends_the_session_here_and_leads_to_the_provider(
    visitor: Visitors, provider: OpenIdProvider
) -> None:
    browser = visitor()
    sign_in(browser, "ann")
    name, secret = secret_of(browser)
    out = browser.post("/-/sign-out", data={"form": form_of(browser.get("/"))})
    assert "sign out there, too" in browser.get(out.headers["location"]).text
    browser.cookies.set(name, secret)
    assert browser.get("/").status_code == 303
    assert browser.get("/-/openid/leave").headers["location"].startswith(f"{provider.url}/leave?client_id=arkqueue")


def test_the_page_of_the_sessions_also_leads_to_the_sign_out_at_the_provider(visitor: Visitors) -> None:
    browser = visitor()
    sign_in(browser, "ann")
    page = browser.get("/-/sessions")
    form = page.text.partition("this browser")[2].partition("<form")[2].partition("</form>")[0]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
    out = browser.post(re.findall(r'action="([^"]+)"', form)[0], data=fields)
    assert "sign out there, too" in browser.get(out.headers["location"]).text
    assert browser.get("/").status_code == 303


def test_signing_in_again_ends_the_session_before(visitor: Visitors) -> None:
    browser = visitor()
    sign_in(browser, "ann")
    name, before = secret_of(browser)
    sign_in(browser, "cleo")
    browser.cookies.set(name, before)
    assert browser.get("/").status_code == 303


@pytest.mark.full
def test_a_provider_that_hangs_holds_up_nobody_else(visitor: Visitors, provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    signed_in = visitor()
    sign_in(signed_in, "ann")
    monkeypatch.setattr(openid, "LONGEST", 60.0)
    provider.hanging.add("/token")
    browsers = [visitor() for _ in range(openid.AT_ONCE)]
    locations = [come_back(begin(browser), "ann") for browser in browsers]
    provider.asked.clear()
    found: list[httpx.Response] = []
    threads = [
        threading.Thread(target=lambda browser=browser, location=location: found.append(browser.get(location)))  # type: ignore[misc]
        for browser, location in zip(browsers, locations, strict=True)
    ]
    for thread in threads:
        thread.start()
    with provider.arrived:
        assert provider.arrived.wait_for(lambda: provider.asked.count("/token") == openid.AT_ONCE, 60)
    assert signed_in.get("/").status_code == 200
    refused = visitor().get("/-/openid")
    assert refused.status_code == 503
    assert "the sign-in" in refused.text
    assert f"{openid.AT_ONCE} others wait for {provider.url}" in refused.text
    assert not found  # while all of that was answered
    provider.released.set()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in found} == {502}
    provider.released.clear()
    given_up = visitor()
    location = come_back(begin(given_up), "ann")
    monkeypatch.setattr(openid, "LONGEST", 0.3)
    assert "has not answered within 0.3 s" in given_up.get(location).text
    monkeypatch.setattr(openid, "LONGEST", 60.0)
    provider.hanging.clear()
    assert sign_in(visitor(), "ann").status_code == 303


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("/.well-known/openid-configuration", (500, b""), "answered HTTP 500 at"),
        ("/.well-known/openid-configuration", (302, b""), "answered HTTP 302 at"),
        ("/.well-known/openid-configuration", (200, b"<html>"), "did not answer with a JSON object at"),
        ("/.well-known/openid-configuration", (200, b"[" * 100_000), "did not answer with a JSON object at"),
        ("/.well-known/openid-configuration", (200, b" " * (2 << 20)), "answers more than 1 MiB at"),
        ("/.well-known/openid-configuration", (200, b"[]"), "did not answer with a JSON object at"),
        ("/keys", (200, b'{"keys": [{"kty": "oct", "k": "AA"}]}'), "has no key for signatures"),
        (
            "/token",
            (401, b'{"error": "invalid_client"}'),
            "does not accept the client arkqueue with its secret: invalid_client",
        ),
        (
            "/token",
            (400, b'{"error": "invalid_request"}'),
            "does not take this server&#39;s request for a token: invalid_request",
        ),
        ("/token", (200, b'{"access_token": "x", "token_type": "Bearer"}'), "gave no id_token"),
        ("/token", (200, b'{"id_token": "x.y"}'), "has not signed"),
        ("/token", (200, json.dumps({"id_token": "." * 300_000}).encode()), "has not signed"),
    ],
)
def test_what_a_provider_may_not_answer_is_a_page_with_the_reason(visitor: Visitors, provider: OpenIdProvider, path: str, answer: tuple[int, bytes], said: str) -> None:  # fmt: skip
    provider.answers[path] = answer
    browser = visitor()
    sent = browser.get("/-/openid")
    if path in ("/token", "/keys"):
        sent = browser.get(come_back(httpx.get(sent.headers["location"], **PLAIN), "ann"))
    assert sent.status_code in (403, 502)
    assert said in sent.text
    assert len(sent.content) < 5000
    provider.answers.clear()
    assert sign_in(browser, "ann").status_code == 303


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example"}, "calls itself https://evil.example"),
        ({"token_endpoint": "http://evil.example/token"}, "has no proper token_endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "has no proper authorization_endpoint"),
        ({"id_token_signing_alg_values_supported": ["none", "HS256"]}, "offers no safe signature algorithm"),
        ({"code_challenge_methods_supported": ["plain"]}, "knows PKCE without S256"),
        ({"response_types_supported": ["id_token"]}, "does not know the authorization code flow"),
    ],
)
def test_a_discovery_document_with_which_nobody_can_be_signed_in_safely_is_refused(visitor: Visitors, provider: OpenIdProvider, metadata: dict[str, Any], said: str) -> None:  # fmt: skip
    provider.metadata = metadata
    refused = visitor().get("/-/openid")
    assert refused.status_code == 502
    assert said in refused.text


def test_a_provider_that_is_away_is_told(visitor: Visitors, configuration: Configuration) -> None:
    with a_port() as nobody:
        assert configuration.openid is not None
        object.__setattr__(configuration.openid, "issuer", f"http://127.0.0.1:{nobody}")
        refused = visitor().get("/-/openid")
    assert refused.status_code == 502
    assert "cannot be reached at" in refused.text


def test_no_browser_is_sent_to_a_provider_that_has_gone_away(visitor: Visitors, provider: OpenIdProvider) -> None:
    browser = visitor()
    assert sign_in(browser, "ann").status_code == 303
    provider.answers["/.well-known/openid-configuration"] = (503, b"")
    for address in ("/-/openid", "/-/openid/leave"):
        refused = browser.get(address)
        assert refused.status_code == 502
        assert "answered HTTP 503 at" in refused.text
    assert browser.get("/").status_code == 200


def test_a_secret_that_others_may_read_is_not_used(visitor: Visitors, secret_file: Path) -> None:
    secret_file.chmod(0o644)
    refused = sign_in(visitor(), "ann")
    assert refused.status_code == 500
    assert SECRET not in refused.text


def test_a_foreign_host_begins_no_sign_in(server: ApiServer) -> None:
    refused = httpx.get(f"{server.url}/-/openid", headers={"host": "evil.example"}, **PLAIN)
    assert refused.status_code == 421


def test_a_browser_that_came_by_another_name_is_sent_to_the_public_one(
    server: ApiServer, configuration: Configuration
) -> None:
    sent = httpx.get(f"{server.url}/-/openid?next=%2Fpapers", headers={"host": "localhost:1"}, **PLAIN)
    assert sent.headers["location"] == f"{configuration.public_url}/-/openid?next=%2Fpapers&here=1"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_leads_no_browser_to_the_provider(visitor: Visitors, provider: OpenIdProvider, site: str) -> None:
    browser = visitor()
    browser.headers["sec-fetch-site"] = site
    for address, shown in ("?next=%2Fpapers&here=1", "?next=%2Fpapers"), ("/leave", ""):
        led = browser.get(f"/-/openid{address}")
        assert (led.status_code, led.headers["location"]) == (303, f"/-/sign-in{shown}")
    assert provider.asked == []


def test_without_a_provider_there_is_nothing_to_sign_in_with(visitor: Visitors, server: ApiServer, configuration: Configuration, session: Session) -> None:  # fmt: skip
    server.close()
    other = run_api(
        create_app(session, configuration.model_copy(update={"openid": None})), "127.0.0.1", configuration.port
    )
    try:
        assert visitor().get("/-/openid").status_code == 404
        assert "openid" not in visitor().get("/-/sign-in").text
    finally:
        other.close()


def test_a_person_who_is_no_author_approves_nothing_that_needs_another_person(visitor: Visitors, session: Session, provider: OpenIdProvider) -> None:  # fmt: skip
    """Cleo is an author by the configuration, dora none; both may approve."""
    settings = ArchiveSettings(process=True, require_approval=("publish",), approval_not_author=True)
    archive = an_archive(session)
    archives.change_settings(session, archive.id, settings, "test")
    archive.commit({"publish": ""}, author="Cleo <cleo@example.org>")
    archive.commit({"publish": ""}, author="Ann <ann@example.org>")
    provider.people["dora"] = {"preferred_username": "dora", "groups": ["reviewers"]}
    dora, cleo = visitor(), visitor()
    sign_in(dora, "dora")
    sign_in(cleo, "cleo")
    refused = press(dora, "/papers@3/publish", "papers@3/publish", "release")
    assert refused.status_code in (403, 409)
    assert "names no person" in refused.text
    own = press(cleo, "/papers@2/publish", "papers@2/publish", "release")
    assert own.status_code in (403, 409)
    assert archive.states()["publish@2"] == "held"
    assert press(cleo, "/papers@3/publish", "papers@3/publish", "release").status_code == 303
    assert archive.states()["publish@3"] == "ready"


def test_doctor_says_what_can_never_work(server: ApiServer, session: Session, provider: OpenIdProvider, secret_file: Path) -> None:  # fmt: skip
    an_archive(session, "papers")
    _, secret = a_token(session, Scope.ADMIN)

    def found() -> dict[str, str]:
        answer = httpx.get(f"{server.url}/api/v1/doctor", headers={"authorization": f"Bearer {secret}"}, **PLAIN)
        return {one["what"]: one["remedy"] for one in answer.json()["findings"]}

    assert found() == {}
    secret_file.write_text("of another client")
    ((what, remedy),) = found().items()
    assert what.startswith(f"{provider.url} does not accept the client arkqueue with its secret: invalid_client")
    assert remedy == "The administrator has to correct client_id or client_secret_file of [openid]."
    secret_file.chmod(0o640)
    provider.metadata = {"issuer": "https://evil.example"}
    an_archive(session, "other")
    with session.database.statement() as connection:
        connection.execute("update archive set name = 'books' where name = 'papers'")
    told = found()
    assert f"{secret_file}: others than its owner may use the client's secret of [openid]" in told
    assert f"{provider.url} calls itself https://evil.example" in told
    assert "the group editors has the scope operate for papers, which no archive is called" in told
    assert len(told) == 3  # pa* may be of an archive that comes


@pytest.mark.full
def test_a_real_browser_signs_in_and_out_without_javascript(server: ApiServer, session: Session, provider: OpenIdProvider) -> None:  # fmt: skip
    """The provider is another site to the browser (another name of this host), so that only SameSite=Lax cookies come back with it."""
    an_archive(session, "papers")
    provider.metadata["authorization_endpoint"] = provider.url.replace("127.0.0.1", "localhost") + "/authorize"
    said: list[str] = []
    with a_browser() as browser:
        page = browser.new_context(base_url=server.url, java_script_enabled=False).new_page()
        page.set_default_timeout(120_000)
        page.on(
            "console",
            lambda message: said.append(message.text) if message.location["url"].startswith(server.url) else None,
        )
        page.goto("/papers?state=failed")
        page.get_by_role("link", name="Sign in with the university").click()
        page.get_by_role("link", name="I am ann").click()
        page.wait_for_url("**/papers?state=failed")
        assert "ann (openid) · operate" in page.content()
        page.locator("summary", has_text="Menu").click()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/-/sign-in?out=1")
        page.get_by_role("link", name="sign out there, too").wait_for()
        page.goto("/papers")
        page.wait_for_url("**/-/sign-in?next=*")
        page.get_by_role("link", name="Sign in with the university").click()
        page.get_by_role("link", name="I am ben").click()
        page.get_by_text("is in no group that may see these pages").wait_for()
    assert [text for text in said if "403" not in text] == []


def test_an_answer_is_stored_as_used_with_the_session(session: Session) -> None:
    person = Person("https://login.example", "1", "ann", ("editors",), ())
    told = {"answer": b"digest", "answer_seconds": 600, "seconds": 60}
    secret = sign_ins.sign_person_in(session, person, **told)
    assert secret is not None
    assert sign_ins.person_of(session, secret) == person
    assert sign_ins.was_used(session, b"digest")
    assert sign_ins.sign_person_in(session, person, **told) is None
    assert sign_ins.sign_person_in(session, person, **told | {"answer": b"another"}) is not None


# Back-channel logout: the provider says who has signed out there.


@pytest.fixture
def telling(provider: OpenIdProvider) -> OpenIdProvider:
    """The provider tells its clients who has signed out; each browser of a person has a session there."""
    provider.metadata["backchannel_logout_supported"] = True
    provider.spoil = lambda claims: claims.update(sid=f"session-{len(provider.asked)}")
    return provider


def is_signed_in(browser: httpx.Client) -> bool:
    return browser.get("/").status_code == 200


def test_who_signs_out_at_the_provider_is_signed_out_in_all_browsers(
    visitor: Visitors, server: ApiServer, session: Session, telling: OpenIdProvider
) -> None:
    ann, anns_phone, cleo = visitor(), visitor(), visitor()
    for browser, person in ((ann, "ann"), (anns_phone, "ann"), (cleo, "cleo")):
        sign_in(browser, person)
    answer = telling.log_out(f"{server.url}/-/openid/logout", sub="sub-ann")
    assert (answer.status_code, answer.content, answer.headers["cache-control"]) == (200, b"", "no-store")
    assert [is_signed_in(browser) for browser in (ann, anns_phone, cleo)] == [False, False, True]
    (entry,) = session.rows("audit_log", archives=None, by="ann", verb="sign out", before=None, hidden=True, limit=9)
    assert entry.note == f"2 browsers of ann, who signed out at {telling.url}"


def test_a_session_at_the_provider_ends_alone(visitor: Visitors, server: ApiServer, telling: OpenIdProvider) -> None:
    sids: list[str] = []
    telling.spoil = lambda claims: (sids.append(f"s-{len(sids)}"), claims.update(sid=sids[-1]))[1]
    ann, anns_phone = visitor(), visitor()
    sign_in(ann, "ann")
    sign_in(anns_phone, "ann")
    address = f"{server.url}/-/openid/logout"
    assert telling.log_out(address, sid="s-9").status_code == 200
    assert telling.log_out(address, sub="sub-cleo", sid="s-0").status_code == 200
    assert [is_signed_in(browser) for browser in (ann, anns_phone)] == [True, True]
    assert telling.log_out(address, sid="s-0").status_code == 200
    assert [is_signed_in(browser) for browser in (ann, anns_phone)] == [False, True]
    assert telling.log_out(address, sub="sub-ann", sid="s-1").status_code == 200
    assert not is_signed_in(anns_phone)


def test_a_browser_of_an_unknown_session_is_signed_out_with_its_person(
    visitor: Visitors, server: ApiServer, telling: OpenIdProvider
) -> None:
    telling.spoil = lambda _claims: None
    ann = visitor()
    sign_in(ann, "ann")
    address = f"{server.url}/-/openid/logout"
    assert telling.log_out(address, sid="s-1").status_code == 200
    assert is_signed_in(ann)
    assert telling.log_out(address, sub="sub-ann", sid="s-1").status_code == 200
    assert not is_signed_in(ann)


WRONG_LOGOUTS: list[tuple[dict[str, Any], str]] = [
    ({"iss": "https://evil.example"}, "iss"),
    ({"aud": "another"}, "aud"),
    ({"aud": None}, "aud"),
    ({"events": None}, "has no event"),
    ({"events": {"http://schemas.openid.net/event/another": {}}}, "has no event"),
    ({"events": ["http://schemas.openid.net/event/backchannel-logout"]}, "has no event"),
    ({"nonce": "n"}, "has a nonce"),
    ({"sub": None}, "names nobody"),
    ({"sub": 7}, "'sub'"),
    ({"sid": "a\nb"}, "has no proper sid"),
    ({"jti": None}, "jti"),
    ({"iat": None}, "iat"),
    ({"exp": None}, "exp"),
    ({"exp": int(time.time()) - 120}, "expired"),
    ({"exp": int(time.time()) + 10 * 86_400}, "is good for more than"),
    ({"header": {"alg": "RS256", "typ": "at+jwt"}}, "is of the type at+jwt"),
    ({"key": RSAKey.generate_key(2048)}, "is not signed by"),
    ({"header": {"alg": "HS256"}, "key": OctKey.import_key(SECRET)}, "is not signed by"),
]
"""Claims of a logout token, and words of the refusal."""


def test_a_logout_token_that_is_not_right_signs_nobody_out(
    visitor: Visitors, server: ApiServer, telling: OpenIdProvider
) -> None:
    ann = visitor()
    sign_in(ann, "ann")
    for claims, said in WRONG_LOGOUTS:
        answer = telling.log_out(f"{server.url}/-/openid/logout", **{"sub": "sub-ann", **claims})
        assert answer.status_code == 400, (claims, answer.text)
        assert answer.json()["error"] == "invalid_request"
        assert said in answer.json()["error_description"], claims
        assert is_signed_in(ann), claims


def test_a_logout_token_works_once(visitor: Visitors, server: ApiServer, telling: OpenIdProvider) -> None:
    ann, address = visitor(), f"{server.url}/-/openid/logout"
    assert telling.log_out(address, sub="sub-ann", jti="once").status_code == 200
    sign_in(ann, "ann")
    answer = telling.log_out(address, sub="sub-ann", jti="once")
    assert (answer.status_code, answer.json()["error_description"].partition(".")[0]) == (400, "the logout token: has been used already")  # fmt: skip
    assert is_signed_in(ann)


def test_an_id_token_signs_nobody_out(visitor: Visitors, server: ApiServer, telling: OpenIdProvider) -> None:
    """Whoever has got an id_token of somebody cannot sign them out with it."""
    ann = visitor()
    sign_in(ann, "ann")
    told = {"sub": "sub-ann", "jti": None, "events": None, "nonce": "n", "header": {"alg": "RS256", "typ": "JWT"}}
    assert telling.log_out(f"{server.url}/-/openid/logout", **told).status_code == 400
    assert is_signed_in(ann)


def test_a_provider_that_does_not_say_that_it_tells_of_logouts_is_not_heard(
    visitor: Visitors, server: ApiServer, provider: OpenIdProvider
) -> None:
    ann = visitor()
    sign_in(ann, "ann")
    assert provider.log_out(f"{server.url}/-/openid/logout", sub="sub-ann").status_code == 404
    assert is_signed_in(ann)


def test_what_anybody_sends_does_not_ask_the_provider_for_its_keys_again_and_again(
    server: ApiServer, telling: OpenIdProvider
) -> None:
    other = RSAKey.generate_key(2048)
    for _ in range(5):
        assert telling.log_out(f"{server.url}/-/openid/logout", sub="sub-ann", key=other).status_code == 400
    for body in ("", "logout_token=", "logout_token=x.y.z", f"logout_token={DEEP}.y.z", "logout_token=" + "x" * 20_000):
        answer = httpx.post(f"{server.url}/-/openid/logout", content=body, **PLAIN)
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    assert telling.asked.count("/keys") == 1
