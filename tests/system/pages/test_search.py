"""The results of the search and the filters of an archive's page, and who may see them."""

from __future__ import annotations

import html
import re

import httpx
import pytest

from arkqueue.db.session import Session
from arkqueue.model import RunId
from arkqueue.queue import control, deletion, sign_ins, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.views import search as views
from arkqueue.web import ApiServer
from tests.builders import AnArchive, an_archive, faulty
from tests.system.pages.conftest import Visitors, said

SHA = "c0ffee" + "0" * 34


@pytest.fixture
def archive(session: Session) -> AnArchive:
    archive = an_archive(session)
    archive.commit({"index": "", "pdf": "depends: [index]"}, author="Ann Lee <ann@example.org>")
    archive.commit({"index": "", "tile": "foreach: [north, south]"}, author="Ben")
    archive.sql("update revision set message = 'Re-draw the harbour (1911)', name = %s where number = 2", SHA)
    archive.sql("update revision set previous = %s where number = 3", SHA)
    return archive


def found(browser: httpx.Client, **asked: str) -> dict[str, list[str]]:
    """The names of what a search shows, by kind."""
    answer = browser.get("/-/search", params=asked | {"format": "json"})
    assert answer.status_code == 200, answer.text
    page = answer.json()
    return {
        "archives": page["found"]["archives"],
        "runs": [hit["run"]["full_name"] for hit in page["hits"]],
        "tasks": [f"{task['place']}/{task['name']}" for task in page["found"]["tasks"]],
        "items": [task["full_name"] for task in page["found"]["items"]],
    }


ADDRESSES = [
    ("papers", "/papers"), ("papers@2", "/papers@2"), (" papers@3/tile/north ", "/papers@3/tile/north"), (SHA[:8], "/papers@2"), ("g" + SHA[:6], "/papers@2"),
    ("papers@3/tile/*", "/papers@3/tile/%2A"), ("papers@3/tile", "/papers@3/tile"), ("papers@3/*/north", "/papers@3/%2A/north"),
    ("/papers@3/tile/north", "/papers@3/tile/north"), ("https://queue.example.org/papers@3?list=tile#L4", "/papers@3"),
    ("papers 3", "/papers@3"), ("papers r3/tile/north", "/papers@3/tile/north"), ("r3", "/papers@3"), ("#2", "/papers@2"),
    (f"commit {SHA}", "/papers@2"), (f"papers {SHA[:8].upper()}", f"/papers@g{SHA[:8]}"),
]  # fmt: skip
"""Texts of the search field, and the addresses to which they lead."""


@pytest.mark.usefixtures("archive")
def test_an_address_or_an_id_leads_straight_there(reader: httpx.Client) -> None:
    for text, address in ADDRESSES:
        assert reader.get("/-/search", params={"q": text}).headers["location"] == address, text


@pytest.fixture
def book(session: Session) -> AnArchive:
    """A Git archive with two branches."""
    archive = an_archive(session, "book", branches=("main", "fix/one"))
    for branch in ("main", "fix/one"):
        archive.commit({"upload": "", "upgrade": "", "index": ""}, branch=branch)
    return archive


@pytest.mark.usefixtures("book")
def test_a_branch_is_found_by_its_name_and_leads_straight_there(reader: httpx.Client) -> None:
    for text, place in (
        ("book:fix/one", "/book:fix%2Fone"),
        ("book:fix%2Fone", "/book:fix%2Fone"),
        ("book:fix/one@2", "/book:fix%2Fone@2"),
        ("book:fix/one@2/upload", "/book:fix%2Fone@2/upload"),
    ):
        assert reader.get("/-/search", params={"q": text}).headers["location"] == place, text
    for text, place in (("fix/one", "/book:fix%2Fone"), ("fix/one@2", "/book:fix%2Fone@2")):
        assert reader.get("/-/search", params={"q": text, "archive": "book"}).headers["location"] == place, text
    for text in ("fix/one", "FIX", "one"):
        page = reader.get("/-/search", params={"q": text})
        assert 'href="/book:fix%2Fone"' in page.text, text
        assert "Branches fix/one of book" in said(page)


@pytest.mark.usefixtures("book")
def test_a_branch_is_shown_to_those_who_may_see_its_archive(visitor: Visitors, session: Session) -> None:
    an_archive(session, "papers")
    assert "fix/one of" not in visitor(Scope.READ, "papers").get("/-/search", params={"q": "fix"}).text


@pytest.mark.usefixtures("book")
def test_the_beginning_of_a_task_of_a_run_finds_it(reader: httpx.Client) -> None:
    assert reader.get("/-/search", params={"q": "book@2/ind"}).headers["location"] == "/book@2/index"
    assert reader.get("/-/search", params={"q": "2/ind", "archive": "book"}).headers["location"] == "/book@2/index"
    words = said(reader.get("/-/search", params={"q": "book@2/up"}))
    assert "Tasks book@2/upgrade book@2/upload" in words or "Tasks book@2/upload book@2/upgrade" in words
    assert "Nothing that you may see" in said(reader.get("/-/search", params={"q": "book@2/zz"}))


@pytest.mark.usefixtures("archive")
def test_an_address_of_nothing_is_looked_for_as_words(reader: httpx.Client) -> None:
    for text in ("papers@3/index/*", "papers@3/tile/none", "papers@3/*/none", "/", "https://example.org/"):
        assert "Nothing that you may see has this" in said(reader.get("/-/search", params={"q": text})), text
    near = reader.get("/-/search", params={"q": "Papers@3"})
    assert re.findall(r'href="/(papers[^"]*)"><b>', near.text) == ["papers@3", "papers"]


@pytest.mark.usefixtures("archive")
def test_a_number_is_of_the_archive_whose_page_one_looks_at(reader: httpx.Client) -> None:
    assert reader.get("/-/search", params={"q": "3", "archive": "papers"}).headers["location"] == "/papers@3"
    assert found(reader, q="3")["runs"] == ["papers@3"]
    assert 'name="archive" value="papers"' in reader.get("/papers").text


@pytest.mark.usefixtures("archive")
def test_a_revision_is_found_by_words_of_its_message_and_author(reader: httpx.Client) -> None:
    for text in ("harbour", "HARB", "draw re", "1911", "lee harbour", "ann@example", "(1911)"):
        assert found(reader, q=text)["runs"] == ["papers@2"], text


def test_words_that_are_not_all_there_find_nothing(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({})
    assert found(reader, q="harbour ben") == {"archives": [], "runs": [], "tasks": [], "items": []}
    assert "Nothing that you may see" in reader.get("/-/search", params={"q": "harbour ben"}).text


@pytest.mark.usefixtures("archive")
def test_archives_tasks_and_items_are_found(reader: httpx.Client, archive: AnArchive) -> None:
    assert found(reader, q="aper")["archives"] == ["papers"]
    assert found(reader, q="til")["tasks"] == ["papers/tile"]
    assert found(reader, q="south")["items"] == ["papers@3/tile/south"]
    archive.end("tile/south@3", 75)
    for address, why in ("/-/search?q=south", "exit code 75"), ("/papers@3", "the next attempt is due at"):
        assert f"deferred: {why}" in said(reader.get(address)), address


def test_items_are_found_by_the_beginning_of_their_keys_in_all_runs(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"tile": "foreach: ['bad/1', 'bad/2', 'bae', 'Bad', 'ba%']"})
    archive.commit({"tile": "foreach: ['bad/1']"})
    archive.commit({"other": ""})
    newest = ["papers@5/tile/bad%2F1", "papers@4/tile/bad%2F2", "papers@4/tile/bad%2F1"]
    assert sorted(found(reader, q="bad")["items"]) == sorted(newest)
    assert found(reader, q="bad")["items"][0] == newest[0]
    assert found(reader, q="bad/1")["items"] == [newest[0], newest[2]]
    assert found(reader, q="bad%2F1")["items"] == [newest[0], newest[2]]
    assert found(reader, q="ba%")["items"] == ["papers@4/tile/ba%25"]
    archive.commit({"tile": "foreach: [plain]", "sheet": "foreach: [plain]"})
    assert found(reader, q="tile/pla")["items"] == ["papers@7/tile/plain"]
    assert found(reader, q="tile/bad%2F1")["items"] == [newest[0], newest[2]]
    assert found(reader, q="other/plain")["items"] == found(reader, q="tile/")["items"] == []
    deletion.delete_run(archive.session, RunId(archive.run_id(5)), "ann")
    assert found(reader, q="bad/1")["items"] == [newest[2]]


def test_revisions_that_are_found_have_pages(reader: httpx.Client, archive: AnArchive) -> None:
    for _ in range(45):
        archive.commit({}, author="Dee <dee@example.org>")
    deletion.delete_run(archive.session, RunId(archive.run_id(20)), "ann")
    wanted = [f"papers@{number}" for number in range(48, 3, -1) if number != 20]
    for address in ("/-/search?q=change", "/-/search?author=dee", "/-/search?author=dee&q=change"):
        seen, further = list[str](), address
        while further:
            seen += [hit["run"]["full_name"] for hit in reader.get(f"{further}&format=json").json()["hits"]]
            page = html.unescape(reader.get(further).text)
            (further, *_) = re.findall(r'href="(/-/search\?[^"]*before=\d+)"', page) or [""]
        assert seen[: len(wanted)] == wanted, address
        assert len(set(seen)) == len(seen), address
    mine = html.unescape(reader.get("/-/mine?author=dee").text)
    assert 'href="/-/search?author=dee">All revisions of dee<' in mine


def test_items_that_are_found_have_pages(reader: httpx.Client, archive: AnArchive) -> None:
    items = ", ".join(f"map{number:02}" for number in range(50))
    archive.commit({"tile": f"foreach: [{items}]"})
    seen, address = [], "/-/search?q=map"
    for _ in range(3):
        seen += [task["full_name"] for task in reader.get(f"{address}&format=json").json()["found"]["items"]]
        (*_, address) = re.findall(r'href="(/-/search\?q=map&amp;items=\d+)"', reader.get(address).text) or [""]
        address = address.replace("&amp;", "&")
    assert address == ""
    assert sorted(seen) == [f"papers@4/tile/map{number:02}" for number in range(50)]


def test_where_too_many_keys_begin_so_the_page_says_it(
    reader: httpx.Client, archive: AnArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.commit({"tile": f"foreach: {[f'sheet{number:02}' for number in range(30)]}"})
    said_so = "type more of the key to see others"
    monkeypatch.setattr(views, "MOST_LOOKED_AT", 30)
    assert said_so not in reader.get("/-/search", params={"q": "sheet"}).text
    monkeypatch.setattr(views, "MOST_LOOKED_AT", 29)
    page = reader.get("/-/search", params={"q": "sheet"})
    assert said_so in page.text
    assert reader.get("/-/search", params={"q": "sheet", "format": "json"}).json()["found"]["is_cut"] is True
    assert said_so not in reader.get("/-/search", params={"q": "sheet2"}).text


def test_the_last_revisions_of_an_author_say_what_failed(reader: httpx.Client, archive: AnArchive) -> None:
    archive.fail("index@2")
    (hit,) = reader.get("/-/search", params={"author": "ann lee", "format": "json"}).json()["hits"]
    assert [hit["run"]["full_name"], [task["name"] for task in hit["failed"]]] == ["papers@2", ["index"]]
    assert 'href="/papers@2/index"' in reader.get("/-/search", params={"author": "ann lee"}).text


def test_who_has_just_committed_sees_their_revisions_and_what_failed(
    visitor: Visitors, session: Session, server: ApiServer, archive: AnArchive
) -> None:
    archive.commit({"index": "", "pdf": ""}, author="Ann Lee <ann@example.org>")
    archive.commit({"index": ""}, author="Ben <ben@example.org>")
    archive.end("index@4", 1, message="line 7: a brace is missing")
    other = an_archive(session, "secret")
    other.commit({"hidden": ""}, author="Ann Lee <ann@example.org>")
    token, _ = tokens.create(
        session, name="ann", scope=Scope.APPROVE, archives=["papers"], authors=["Ann Lee <ann@example.org>"], by="test"
    )
    with httpx.Client(base_url=server.url, timeout=60) as ann:
        ann.get("/-/sign-in", params={"code": sign_ins.code(session, token)})
        page = ann.get("/-/mine")
        assert 'href="/-/mine"' in ann.get("/").text
    runs = re.findall(r'href="/([^"]*)"><b>', page.text)
    assert runs == ["papers@4", "papers@2"]
    assert 'href="/papers@4/index"' in page.text
    assert "a brace is missing" in page.text
    asked = visitor(Scope.READ)
    assert "names no author" in asked.get("/-/mine").text
    assert re.findall(r'href="/([^"]*)"><b>', asked.get("/-/mine", params={"author": "ben"}).text) == [
        "papers@5",
        "papers@3",
    ]
    assert "You may see no revision" in asked.get("/-/mine", params={"author": "nobody at all"}).text
    assert visitor().get("/-/mine").status_code == 303


def test_a_note_on_a_failure_is_shown_where_the_failure_is_found(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": "", "b": ""}, author="Dee <dee@example.org>")
    archive.fail("a@4", "b@4")
    run, task = RunId(archive.run_id(4)), archive.task("a@4")
    control.note(archive.session, "known: <disk> of node 3", "ann", run=run, task=task)
    text = said(reader.get("/-/mine?author=dee"))
    assert "a exit code 1 · noted by ann: known: &lt;disk&gt; of node 3 b exit code 1" in text
    page = reader.get("/-/search?author=dee")
    assert "· a (noted) · b" in said(page)
    assert 'title="noted by ann: known: &lt;disk&gt; of node 3">(noted)<' in page.text


def test_each_failure_of_a_revision_has_its_line_and_others_are_counted(
    reader: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({**dict.fromkeys("abcd", ""), "tile": "foreach: [x, y, z]"}, author="Dee <dee@example.org>")
    for name in ("a", "b", "c"):
        archive.write(f"{name}@4", f"{name}.tex:7: a brace is missing\n".encode())
    archive.fail("a@4", "b@4")
    text = said(reader.get("/-/mine?author=dee"))
    assert "a a.tex:7: a brace is missing b b.tex:7: a brace is missing" in text
    assert "more" not in text
    archive.fail("c@4", "d@4", "tile/x@4", "tile/z@4")
    assert "c c.tex:7: a brace is missing 3 more" in said(reader.get("/-/mine?author=dee"))
    assert "3 more a.tex:7: a brace is missing" in said(reader.get("/-/search?author=dee"))


def test_who_has_committed_a_faulty_workflow_file_sees_its_line(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit(faulty(), author="Dee <dee@example.org>")
    for address in ("/-/mine?author=dee", "/-/search?author=dee"):
        text = said(reader.get(address))
        assert "_workflows/test.yaml:1:1 a fault" in text, text


def test_nothing_is_found_that_a_token_is_not_for(visitor: Visitors, session: Session, archive: AnArchive) -> None:  # noqa: ARG001
    secret = an_archive(session, "secret")
    secret.commit({"hidden": "", "tile": "foreach: [north]"}, author="Ann Lee")
    secret.sql("update revision set name = %s where branch_id = %s and number = 2", "ba5eba11", secret.branches[""].id)
    browser = visitor(Scope.READ, "papers")
    for text in ("secret", "hidden", "secret@2", "secret@2/hidden", "ba5eba11", "ba5e"):
        assert found(browser, q=text) == {"archives": [], "runs": [], "tasks": [], "items": []}, text
        assert "secret@" not in browser.get("/-/search", params={"q": text}).text.replace(text, "")
    assert found(browser, q="ann lee")["runs"] == ["papers@2"]
    assert found(browser, q="north")["items"] == ["papers@3/tile/north"]
    assert found(browser, q="2")["runs"] == ["papers@2"]
    assert found(visitor(Scope.READ), q="hidden")["tasks"] == ["secret/hidden"]


@pytest.mark.usefixtures("archive")
def test_whatever_is_looked_for_is_only_text(reader: httpx.Client) -> None:
    for text in ("'", "a' & 'b", "') ; select", "\\", "<script>x</script>", "a\0b", "!x | (y", "\u202egnp", "w" * 5000, "%", ":*"):  # fmt: skip
        for asked in ({"q": text}, {"author": text}):
            answer = reader.get("/-/search", params=asked)
            assert answer.status_code == 200, (text, answer.text)
            assert "<script>x" not in answer.text
        filters = {"message": text, "author": text, "task": text, "state": text}
        assert reader.get("/papers", params=filters).status_code == 200, text


# The filters of an archive's page


def shown(browser: httpx.Client, **asked: str) -> list[int]:
    page = browser.get("/papers", params=asked | {"format": "json"}).json()
    return [row["run"]["rev"] for row in page["rows"]]


def test_runs_are_filtered_by_words_author_task_and_state(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"index": ""}, author="Ann Lee")
    archive.fail("index@2")
    archive.run("index@3")
    assert shown(reader, message="harbour") == [2]
    assert shown(reader, message="lee") == []  # who made a commit is not in its message
    assert shown(reader, message="lee", state="unhandled") == []
    assert shown(reader, message="???") == shown(reader, author="<>") == []
    assert shown(reader, author="ann") == [4, 2, 1]  # who made the first one is called ann, too
    assert shown(reader, author="ann lee") == [4, 2]
    assert shown(reader, author="harbour") == []
    assert shown(reader, task="tile") == [3]
    assert shown(reader, task="index", state="failed") == [2]
    assert shown(reader, task="index", state="completed") == [3]
    assert shown(reader, author="lee", state="processing") == [4]
    assert shown(reader, state="failed", message="harbour", task="index", author="ann") == [2]


def test_filtered_runs_have_pages(reader: httpx.Client, archive: AnArchive) -> None:
    for number in range(120):
        archive.commit({"even": ""} if number % 2 else {})
    first = reader.get("/papers", params={"task": "even", "format": "json"}).json()
    assert [row["run"]["rev"] for row in first["rows"]] == list(range(123, 23, -2))
    page = reader.get("/papers", params={"task": "even"}).text
    assert f'href="/papers?task=even&amp;before={first["next"]}"' in page
    assert shown(reader, task="even", before=str(first["next"])) == list(range(23, 4, -2))
