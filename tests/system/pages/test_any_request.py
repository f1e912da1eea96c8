"""Random addresses and forms: whatever a browser sends, no page answers with an internal error."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkqueue.db.session import Session
from arkqueue.queue import claim
from tests.builders import HOST, PROCESS, a_list
from tests.fuzzing import fuzzed
from tests.system.pages.conftest import form_of

pytestmark = pytest.mark.full

NAMES = st.sampled_from(
    ["papers", "papers@2", "papers@3", "papers@3/index", "papers@2/*/a", "papers@2/fetch/*", "papers@2/fetch/b%2Fc", "papers@fill:1", "papers/tex", "node2", "papers:x@1", "papers@g12", "papers@id:x", "x@y@z", "-/archives/papers", "papers@"]
)  # fmt: skip
VALUES = (
    NAMES
    | st.sampled_from(
        ["", "0", "1", "3", "-1", "1e9", "9" * 30, "9223372036854775808", "²", "٣", "failed", "ready", "unhandled", "yes", "json", "atom", "svg", "index", "index,pdf", "[", "<b>", "../x", "%00", "*", "1d", "x" * 3000]
    )
    | st.text(max_size=5)
)  # fmt: skip
PAGES = NAMES | st.sampled_from(
    ["", *(f"-/{page}" for page in ("search", "mine", "locks", "schedules", "task-managers", "audit-log", "tokens", "sessions", "notifications", "settings/papers", "trigger", "submit/papers", "add-archive", "report", "export", "payload", "log/1", "log/2/lines", "sign-in"))]
)  # fmt: skip
ASKED = ["q", "author", "archive", "items", "page", "before", "after", "state", "list", "columns", "gone", "open", "message", "task", "format", "line", "find", "back", "times", "attempt", "of", "number", "first", "next", "code", "log-size", "as-of"]  # fmt: skip
VERBS = st.sampled_from(
    ["retry", "retry-from", "cancel", "restart", "refresh", "skip", "skip-as-completed", "prioritize", "hold", "release", "report", "report-now", "note", "delete", "undelete", "purge", "pause", "resume", "unhold", "sync", "trigger", "assume-gone", "purge-log", "purge-outputs", "set-lock", "pause-lock", "resume-lock", "drain", "resume-worker", "pause-all", "resume-all", "resend", "make-token", "change-settings", "add-archive", "rewind", "accept", "waive"]
)  # fmt: skip
FIELDS = ["back", "text", "sure", "task", "without", "force", "from_start", "skip_outdated", "state", "revision", "first", "last", "capacity", "branch", "scope", "archives", "authors", "url", "kind", "start", "image", "process", "branches", "tier", "max_running", "keep", "notify", "require_approval"]  # fmt: skip


@pytest.fixture
def browser(admin: httpx.Client, session: Session) -> httpx.Client:
    """An administrator's, beside an archive with tasks in several states, a list and a log."""
    claim.register(session, PROCESS, HOST, "node2", 4)
    archive = a_list(session)
    archive.commit({"index": "on: [commit, manual]", "pdf": "depends: [index]\nlock: [tex]", "sub": "foreach: submission"})  # fmt: skip
    archive.fail("index@3")
    archive.run("fetch/a@2")
    archive.write("fetch/b/c@2", b"hello \x1b[31m\n" * 50)
    return admin


@pytest.fixture
def form(browser: httpx.Client) -> str:
    """The secret of the session's forms, whatever page they are on."""
    return form_of(browser.get("/papers"))


def is_in_order(answer: httpx.Response) -> bool:
    """Whether the server says what it means. The repositories of these requests cannot be read, and
    what needs one is answered with 502.
    """
    return answer.status_code < 500 or answer.status_code == 502


@fuzzed
@given(PAGES | st.text(max_size=8), st.dictionaries(st.sampled_from(ASKED), VALUES, max_size=3))
def test_any_address(browser: httpx.Client, path: str, asked: dict[str, str]) -> None:
    answer = browser.get("/" + quote(path, safe="/:@*%", errors="replace"), params=asked)
    assert is_in_order(answer), answer.text


@fuzzed
@given(VERBS, VALUES, st.booleans(), st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4))
def test_any_form(
    browser: httpx.Client, form: str, verb: str, name: str, is_of_name: bool, fields: dict[str, str]
) -> None:
    address = "/-/act" if is_of_name else f"/-/act/{verb}"
    sent = {"form": form, "back": "/papers", "name": name, "verb": verb, **fields}
    answer = browser.post(address, data=sent)
    assert is_in_order(answer), answer.text
    assert "was not sent from a page" not in answer.text, "the secret stays"
