"""The form that hands in a document: a file or a text, judged, with all faults shown; no JavaScript
is needed.
"""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.model import LONGEST_PAYLOAD, SourceFile, Workflow
from arkqueue.queue import claim
from arkqueue.queue.tokens import Scope
from arkqueue.runtime.home import host_id
from arkqueue.runtime.shares import Shares
from arkqueue.web import create_app, run_api
from arkqueue.web.pages import submitting
from arkqueue.workflow.parsing import parse
from tests.builders import AnArchive, an_archive, faulty
from tests.system.pages.conftest import Visitors, a_token, first, form_of
from tests.system.pages.conftest import said as words
from tests.system.web.conftest import PLAIN
from tests.system.web.test_submissions import archive

__all__ = ["archive"]

SCHEMA = b'{"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}, "pages": {"type": "integer"}}}'
TASKS = b"submission: {schema: batch.json}\ntasks:\n- {name: check, on: submission}\n- {name: deposit, on: submission, foreach: submission, depends: [check]}\n"


def judged() -> Workflow:
    return parse([SourceFile("_workflows/a.yaml", TASKS)], lambda path: SourceFile(path, SCHEMA))


def send(browser: httpx.Client, file: tuple[str, bytes] | None = None, **fields: str) -> httpx.Response:
    """Fill in the form and send it, as a browser does: without a file it sends an empty one."""
    form = fields.pop("form", None) or form_of(browser.get("/-/submit/papers"))
    return browser.post("/-/submit/papers", data={"form": form, **fields}, files={"file": file or ("", b"")})


def runs(archive: AnArchive) -> list[Any]:
    return archive.sql("select number, run from run where trigger = 'submission' order by id")


def payload(archive: AnArchive) -> bytes:
    return b"".join(row["data"] for row in archive.sql("select data from payload_part order by payload_id, position"))


def test_a_file_becomes_a_run_whose_page_is_shown(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    assert 'href="/-/submit/papers"' in browser.get("/papers").text
    page = browser.get("/-/submit/papers").text
    assert "becomes a run of <b>check</b>, <b>deposit</b>" in page
    sent = send(browser, ("batch.CSV", b"id,note\r\na,\xc3\xa9\r\n"), id="may 7/é")
    assert (sent.status_code, sent.headers["location"]) == (303, "/papers@2.2")
    assert payload(archive) == b"id,note\r\na,\xc3\xa9\r\n"
    assert archive.sql("select sender_id, kind, run.by from submission join run on run.id = run_id") == [
        {"sender_id": "may 7/é", "kind": "csv", "by": "operate test"}
    ]
    again = send(browser, ("batch.csv", b"id,note\r\na,\xc3\xa9\r\n"), id="may 7/é")
    assert "was submitted with the id may 7/é before, and became papers@2.2" in words(again)
    pasted = b'["a"]\n'
    assert send(browser, ("a.json", pasted), id="pasted").status_code == 303
    assert "Submitted already" in words(send(browser, text=pasted.decode().replace("\n", "\r\n"), id="pasted"))
    other = send(browser, ("batch.csv", b"id\r\nb\r\n"), id="may 7/é")
    assert other.status_code == 422
    assert "with another payload" in other.text
    assert len(runs(archive)) == 2


def test_what_was_handed_in_is_downloaded_as_it_is(visitor: Visitors, session: Session, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    document = b'[{"id": "a", "title": "<script>alert(1)</script>"}]\n'
    address = send(browser, ("batch.json", document)).headers["location"]
    (link,) = re.findall(r'href="(/-/payload[^"]+)" download', browser.get(address).text)
    answer = browser.get(link)
    assert answer.content == document
    assert answer.headers["content-disposition"] == 'attachment; filename="submission.json"'
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["x-content-type-options"] == "nosniff"
    an_archive(session, "vault")
    assert visitor(Scope.READ, "vault").get(link).status_code == 404
    archive.commit({"check": "", "deposit": ""})
    assert "/-/payload" not in browser.get("/papers@3").text
    assert browser.get("/-/payload?of=papers@3").status_code in (404, 409)


def test_a_text_becomes_a_run_that_waits_for_a_release_where_that_is_wanted(
    visitor: Visitors, archive: AnArchive
) -> None:
    sent = send(visitor(Scope.OPERATE), text="a\r\nb\r\n", kind="lines", hold="yes")
    assert sent.headers["location"] == "/papers@2.2"
    assert payload(archive) == b"a\nb\n"
    assert archive.states()["check@2.2"] == "held"


@pytest.mark.parametrize("text", ['["a", "b"]', '  {"items": ["a"]}'])
def test_a_text_that_looks_like_json_is_read_as_json(visitor: Visitors, archive: AnArchive, text: str) -> None:
    answer = send(visitor(Scope.OPERATE), text=text)
    assert answer.status_code == 303, answer.text
    assert archive.sql("select kind::text from submission") == [{"kind": "json"}]
    assert "as the file's name or the text shows" in html.unescape(visitor(Scope.OPERATE).get("/-/submit/papers").text)


def test_all_faults_are_shown_above_the_form_as_it_was_sent(visitor: Visitors, archive: AnArchive) -> None:
    archive.commit(judged())
    browser = visitor(Scope.OPERATE)
    assert "It is judged by <code>batch.json</code> first" in browser.get("/-/submit/papers").text
    text = '{"pages": "<b>many</b>", "items": []}'
    refused = send(browser, text=text, kind="json", id="x", hold="yes")
    assert refused.status_code == 422
    assert "2 faults: nothing was made" in refused.text
    for said in (
        "title",
        "&lt;b&gt;many&lt;/b&gt;",
        'value="x"',
        'value="yes" checked',
        '<option value="json" selected>',
    ):
        assert said in refused.text, said
    assert "<b>many" not in refused.text
    assert runs(archive) == []
    # The form of the answer is good, too.
    assert send(browser, form=form_of(refused), text='{"title": "May", "items": ["a"]}', kind="json").status_code == 303


NOT_HANDED_IN: list[tuple[tuple[str, bytes] | None, dict[str, str], str]] = [
    (None, {"text": " \r\n"}, "has neither a file nor a text"),
    (("a.json", b"[]"), {"text": "[]"}, "has a file and a text"),
    (("a.doc", b"x"), {}, "does not name the format of the document"),
    (None, {"text": "id,title"}, "does not name the format of the document"),
    (None, {"text": "[1, "}, "payload:1:"),
    (("a.json", b"[]"), {"id": " .. "}, "the id: is not a valid id"),
    (("a.json", b"[]"), {"id": "x" * 201}, "the id: is not a valid id"),
    (None, {"text": "[7, 8]", "kind": "json", "revision": "99"}, "[7, 8]</textarea>"),
    (("a.json", b"[" * 100_000), {}, "fault"),
    (("a.json", b"\xff"), {}, "UTF-8"),
    (("a.json", b""), {}, "fault"),
]
"""A file, the fields of the form, and words of the refusal."""


def test_what_cannot_be_handed_in_is_told(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    for file, fields, said in NOT_HANDED_IN:
        refused = send(browser, file, **fields)
        assert refused.status_code == 422, (file, fields)
        assert said in refused.text
        assert runs(archive) == []


def test_a_text_and_a_document_have_their_limits(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    long = send(browser, text="x" * ((1 << 20) + 1), kind="lines")
    assert long.status_code == 400
    assert "choose a file instead" in long.text
    many = browser.post("/-/submit/papers", data={f"f{n}": "x" for n in range(30)}, files={"file": ("", b"")})
    assert many.status_code == 400

    def endless() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        for _ in range((LONGEST_PAYLOAD >> 20) + 2):
            yield b"x" * (1 << 20)
        form = form_of(browser.get("/-/submit/papers"))
        yield f'\r\n--b\r\nContent-Disposition: form-data; name="form"\r\n\r\n{form}\r\n--b--\r\n'.encode()

    huge = browser.post(
        "/-/submit/papers", content=endless(), headers={"content-type": "multipart/form-data; boundary=b"}
    )
    assert huge.status_code == 413
    assert "is longer than 64 MiB" in huge.text
    assert runs(archive) == []


def attach(browser: httpx.Client, *files: tuple[str, bytes], **fields: str) -> httpx.Response:
    """Send the form with a document and attachments, as a browser does."""
    data = {"form": form_of(browser.get("/-/submit/papers")), "text": "a", "kind": "lines", **fields}
    parts = [("file", ("", b"")), *(("attachments", file) for file in files or [("", b"")])]
    return browser.post("/-/submit/papers", data=data, files=parts)


@pytest.fixture
def stored(configuration: Configuration, session: Session) -> Callable[[], dict[str, bytes]]:
    """A task manager has the server's home folder. Gives the attachments that stand in its scratch folder."""
    configuration.home.mkdir(exist_ok=True)
    host = host_id(configuration.home)
    claim.register(session, "manager", host, "box", 4, store=host)

    def read() -> dict[str, bytes]:
        return {
            path.name: path.read_bytes()
            for path in configuration.scratch.rglob("*")
            if path.is_file() and not path.name.endswith("-id")
        }

    return read


def test_attachments_come_with_the_form(
    visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]]
) -> None:
    browser = visitor(Scope.OPERATE)
    assert 'name="attachments" multiple' in browser.get("/-/submit/papers").text
    large = b"\0\xff" * (3 << 20)
    sent = attach(browser, ("scan 1.tif", large), ("<b>é.txt", b""))
    assert (sent.status_code, sent.headers["location"]) == (303, "/papers@2.2"), sent.text
    assert archive.sql("select name, size from attachment order by position") == [
        {"name": "scan 1.tif", "size": len(large)}, {"name": "<b>é.txt", "size": 0},
    ]  # fmt: skip
    assert sorted(map(len, stored().values())) == [0, len(large)]
    assert large in stored().values()
    assert re.fullmatch("form-[0-9a-f]{32}", archive.sql("select sender_id from submission")[0]["sender_id"])
    page = browser.get("/papers@2.2").text
    assert "<b>é.txt" not in page


@pytest.mark.usefixtures("archive", "stored")
def test_the_preview_of_a_deletion_says_that_the_attachments_do_not_come_back(visitor: Visitors) -> None:
    browser = visitor(Scope.OPERATE)
    assert attach(browser, ("scan.tif", b"x"), ("scan 2.tif", b"x" * 2**20)).status_code == 303
    said = "Its attachments (2 files, 1.0 MiB) are removed, and do not come back."
    assert said in words(first(browser, "papers@2.2", "delete"))
    assert said not in words(first(browser, "papers@2.2/*/a", "delete"))
    assert said not in words(first(browser, "papers@2.2", "cancel"))


def test_files_of_a_form_are_kept_beside_attachments_and_not_in_the_temporary_folder(
    visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    large = b"x" * (2 << 20)
    assert attach(visitor(Scope.OPERATE), ("scan.tif", large)).status_code == 303
    assert list(stored().values()) == [large]
    assert runs(archive) != []


def test_a_large_form_is_refused_where_the_disk_has_no_room_for_it(
    session: Session,
    archive: AnArchive,
    configuration: Configuration,
    stored: Callable[[], dict[str, bytes]],
) -> None:
    server = run_api(create_app(session, configuration.model_copy(update={"min_free": 1 << 60})), "127.0.0.1", 0)
    try:
        at, signed_in = "/-/sign-in", {"token": a_token(session, Scope.OPERATE)[1]}
        with httpx.Client(base_url=server.url, **PLAIN) as browser:
            assert browser.post(at, data=signed_in).status_code == 303
            refused = attach(browser, ("scan.tif", b"x" * (2 << 20)))
            assert refused.status_code == 507
            assert "do not fit on the disk" in refused.text
            assert attach(browser).headers["location"] == "/papers@2.2"
    finally:
        server.close()
    assert len(runs(archive)) == 1
    assert stored() == {}


def test_a_server_that_receives_too_many_documents_says_so(
    visitor: Visitors, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if all places were taken.
    monkeypatch.setattr(submitting, "_places", Shares(0))
    refused = send(visitor(Scope.OPERATE), text="a", kind="lines")
    assert refused.status_code == 503
    assert "too many are being submitted to the archive papers, or to all archives" in words(refused, 503)
    assert runs(archive) == []


def test_a_form_that_is_sent_as_something_else_is_refused(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    data = {"form": form_of(browser.get("/-/submit/papers")), "text": "a", "kind": "lines"}
    refused = browser.post("/-/submit/papers", data=data)
    assert refused.status_code == 400
    assert "is not sent as multipart/form-data" in refused.text
    assert runs(archive) == []


def test_attachments_of_an_id_that_was_submitted_make_no_second_run(
    visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]]
) -> None:
    browser = visitor(Scope.OPERATE)
    assert attach(browser, ("a.txt", b"x"), id="may").headers["location"] == "/papers@2.2"
    assert "Submitted already" in attach(browser, ("a.txt", b"x"), id="may").text
    assert "other" in attach(browser, ("a.txt", b"y"), id="may").text
    assert len(runs(archive)) == 1
    assert list(stored().values()) == [b"x"]


def test_an_attachment_with_a_hostile_name_is_refused(
    visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]]
) -> None:
    browser = visitor(Scope.OPERATE)
    for name in ("../../etc/passwd", "/etc/passwd", "a/../b", "..", "x" * 300):
        refused = attach(browser, ("fine.txt", b"x"), (name, b"y"))
        assert refused.status_code == 422, (name, refused.text)
        assert "nothing was made" in refused.text
        assert (runs(archive), stored()) == ([], {}), name


def test_attachments_of_what_is_refused_are_given_up(
    visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]]
) -> None:
    archive.commit(judged())
    browser = visitor(Scope.OPERATE)
    refused = attach(browser, ("a.txt", b"x"), id="may", text="{}", kind="json")
    assert refused.status_code == 422
    assert runs(archive) == []
    assert archive.sql("select id from upload") == []
    again = attach(browser, ("b.txt", b"other"), id="may", text='{"title": "May", "items": ["a"]}', kind="json")
    assert again.status_code == 303, again.text
    assert b"other" in stored().values()


def test_attachments_have_their_limits(
    visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = visitor(Scope.OPERATE)
    many = attach(browser, *((f"{n}.txt", b"") for n in range(submitting.MOST_ATTACHED + 2)))
    assert many.status_code == 400
    monkeypatch.setattr(submitting, "LONGEST_ATTACHED", 1 << 20)
    large = attach(browser, ("a", b"x" * (1 << 19)), ("b", b"x" * ((1 << 19) + 1)))
    assert large.status_code == 413
    assert "has more than 1 MiB of attachments" in large.text
    assert (runs(archive), stored()) == ([], {})


def test_without_a_task_manager_that_finds_them_attachments_are_refused(visitor: Visitors, archive: AnArchive) -> None:
    refused = attach(visitor(Scope.OPERATE), ("a.txt", b"x"))
    assert refused.status_code == 422
    assert "no task would find them there" in refused.text
    assert runs(archive) == []


def test_no_other_site_and_no_reader_submits_anything(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    form = form_of(browser.get("/-/submit/papers"))
    for answer in (
        send(browser, form="0" * 64, text="[]", kind="json"),
        browser.post(
            "/-/submit/papers",
            data={"form": form, "text": "[]", "kind": "json"},
            files={"file": ("", b"")},
            headers={"sec-fetch-site": "cross-site"},
        ),
    ):
        assert answer.status_code == 403
        assert "was not sent from a page of this server" in answer.text
    signed_out = send(visitor(), form=form, text="[]", kind="json")
    assert signed_out.headers["location"] == "/-/sign-in?next=%2F-%2Fsubmit%2Fpapers"
    reader = visitor(Scope.READ)
    assert send(reader, form=form_of(reader.get("/papers")), text="[]", kind="json").status_code == 403
    assert 'enctype="multipart/form-data"' not in reader.get("/-/submit/papers").text
    elsewhere = visitor(Scope.OPERATE, "books")
    assert elsewhere.get("/-/submit/papers").status_code == 404
    assert send(elsewhere, form=form_of(elsewhere.get("/")), text="[]", kind="json").status_code == 404
    assert runs(archive) == []


def test_without_a_task_for_submissions_there_is_no_button_and_no_form(visitor: Visitors, session: Session) -> None:
    an_archive(session).commit({"a": ""})
    browser = visitor(Scope.OPERATE)
    assert "/-/submit/" not in browser.get("/papers").text
    page = browser.get("/-/submit/papers").text
    assert "No task of the newest revision is for submissions" in page
    assert "<textarea" not in page


def shown_first(browser: httpx.Client, file: tuple[str, bytes] | None = None, **fields: str) -> httpx.Response:
    """Press “Show what would run”."""
    return send(browser, file, preview="yes", **fields)


def press_below(browser: httpx.Client, page: httpx.Response, file: tuple[str, bytes] | None = None, *attachments: tuple[str, bytes], change: bool = False) -> httpx.Response:  # fmt: skip
    """Press the button of the preview, as a browser does."""
    assert page.status_code == 200, page.text
    (form,) = re.findall(r'<form method="post" action="/-/submit/papers".*?</form>', page.text, re.S)
    fields = {
        name: html.unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form)
    }
    parts = [("file", file or ("", b"")), *(("attachments", one) for one in attachments)]
    return browser.post("/-/submit/papers", data=fields | ({"change": "yes"} if change else {}), files=parts)


def test_the_run_of_a_document_is_shown_before_it_is_made(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    document = b'["a", "b <b>"]\r\n'
    page = shown_first(browser, ("may.json", document), id="may", hold="yes")
    text = words(page)
    assert "Run papers@2.2?" in text
    assert "may.json (JSON, 16 bytes) has no faults. Its run would have 3 tasks." in text
    assert "deposit/a check held by --hold until somebody releases it" in text
    assert '<b>"' not in page.text
    assert (runs(archive), archive.sql("select payload_id from payload_part")) == ([], [])
    archive.commit({"check": "on: submission"})  # the run is made at the revision that was shown
    assert press_below(browser, page).headers["location"] == "/papers@2.2"
    assert payload(archive) == document
    assert archive.states()["check@2.2"] == "held"
    assert archive.sql("select sender_id from submission") == [{"sender_id": "may"}]
    for again in (shown_first, send):
        page = again(browser, ("may.json", document), id="may")
        assert page.status_code == 200
        assert "It was submitted with the id may before, and became papers@2.2" in words(page)
    assert len(runs(archive)) == 1


def test_the_preview_of_a_document_with_faults_is_the_form_with_them(visitor: Visitors, archive: AnArchive) -> None:
    archive.commit(judged())
    refused = shown_first(visitor(Scope.OPERATE), text='{"pages": "many"}', kind="json")
    assert refused.status_code == 422
    assert "nothing was made" in refused.text
    assert "title" in refused.text
    assert runs(archive) == []


def test_from_a_preview_one_goes_back_to_the_form_as_it_was(visitor: Visitors, archive: AnArchive) -> None:
    browser = visitor(Scope.OPERATE)
    for given in ({"text": "a\r\nb <c>\r\n", "kind": "lines"}, {"file": ("a.txt", b"a\nb <c>\n")}):
        form = press_below(browser, shown_first(browser, id="x", **given), change=True)  # type: ignore[arg-type]
        assert form.status_code == 200
        for field in ("\na\nb &lt;c&gt;\n</textarea>", '<option value="lines" selected>', 'value="x"', 'name="revision" value=""'):  # fmt: skip
            assert field in form.text, field
        assert "nothing was made" not in form.text
    assert press_below(browser, shown_first(browser, text="a\nb <c>", kind="lines")).status_code == 303
    assert payload(archive) == b"a\nb <c>"
    assert len(runs(archive)) == 1


def test_what_no_page_carries_is_chosen_again_and_is_what_was_shown(visitor: Visitors, archive: AnArchive, stored: Callable[[], dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(submitting, "LONGEST_CARRIED", 3)
    browser = visitor(Scope.OPERATE)
    fields = {"form": form_of(browser.get("/-/submit/papers")), "preview": "yes"}
    parts = [("file", ("a.txt", b"one\ntwo")), ("attachments", ("scan.tif", b"x")), ("attachments", ("b.tif", b"y"))]
    page = browser.post("/-/submit/papers", data=fields, files=parts)
    assert "The same attachments again: scan.tif, b.tif" in words(page)
    assert stored() == {}
    scans = ("scan.tif", b"x"), ("b.tif", b"y")
    other = press_below(browser, page, ("a.txt", b"three"), *scans)
    assert "the file: is not the one that was shown" in words(other, 422)
    fewer = press_below(browser, page, ("a.txt", b"one\ntwo"), scans[0])
    assert "the attachments: have to be the 2 that were shown, and 1 were chosen" in words(fewer, 422)
    assert runs(archive) == []
    assert press_below(browser, page, ("a.txt", b"one\ntwo"), *scans).headers["location"] == "/papers@2.2"
    assert sorted(stored().values()) == [b"x", b"y"]
    assert payload(archive) == b"one\ntwo"


def test_an_archive_whose_tasks_run_for_submissions_alone_offers_no_trigger(
    visitor: Visitors, session: Session
) -> None:
    archive, operator = an_archive(session, tasks=judged()), visitor(Scope.OPERATE)
    shown = operator.get("/papers")
    assert re.search(r'<a class="b do" href="/-/submit/papers">Submit</a>', shown.text)
    assert "/-/trigger" not in shown.text
    assert "Its tasks run when somebody submits a document; a commit runs none of them." in words(shown)
    archive.commit({"check": "on: submission", "pdf": ""})
    assert re.search(r'<a class="b do" href="/-/trigger[^"]*">Trigger</a>', operator.get("/papers").text)
    archive.commit(faulty())
    assert "/-/trigger" not in operator.get("/papers").text
