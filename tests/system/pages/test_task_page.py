"""The page of a task besides its log: its inputs, its frozen definition, its workspace, and its
scratch folder.
"""

from __future__ import annotations

import re

import httpx

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, End, RunId, Usage
from arkqueue.queue import claim, pauses, scratch
from arkqueue.views.reasons import Reason, Why
from arkqueue.web.pages.answer import coded, told
from tests.builders import HOST, PROCESS, AnArchive, an_archive
from tests.counting import counted_rows
from tests.system.pages.conftest import HOSTILE, confirm, first, form_of, press, said


def test_a_task_shows_the_states_and_outputs_that_it_gets(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"mint": "", "check": "", "store": "depends: [mint, {task: check, when: settled}]"})
    archive.end("mint@2", outputs={"ark": "ark:/1/x", "said": HOSTILE})
    archive.fail("check@2")
    page = reader.get("/papers@2/store")
    assert "Inputs 2" in said(page)
    assert 'href="/papers@2/mint"' in page.text
    assert "ark:/1/x" in said(page)
    assert "<script>" not in page.text.partition("<main")[2]
    shown = reader.get("/papers@2/store?format=json").json()["inputs"]
    assert [(one["task"], one["state"]) for one in shown["found"]] == [
        ("papers@2/mint", "completed"),
        ("papers@2/check", "failed"),
    ]
    assert shown["found"][1]["outputs"] == ""
    assert "Inputs" not in said(reader.get("/papers@2/mint"))


def test_inputs_of_a_long_list_and_long_outputs_are_cut_off(reader: httpx.Client, archive: AnArchive) -> None:
    items = ", ".join(f"i{number:02}" for number in range(30))
    archive.commit({"tile": f"foreach: [{items}]", "atlas": "depends: [tile]"})
    archive.end("tile/i00@2", outputs={"text": "x" * 9000})
    page = reader.get("/papers@2/atlas")
    assert "Inputs 20 and more" in said(page)
    assert "of 9,012 characters" in said(page)
    assert len(page.text) < 40_000


def test_a_definition_is_shown_as_it_was_frozen(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit(
        {"build": f"depends: [PREV]\ntimeout: 2h\nscript: |\n  echo one\n  echo '{HOSTILE[:24]}'\nenv: {{A: b}}"}
    )
    archive.commit({"build": "command: other"})
    page = reader.get("/papers@2/build")
    assert "Definition as it was at 2" in said(page)
    (text,) = [part for part in page.text.split("<pre") if "name: build" in part]
    assert "timeout: 7200.0" in text
    assert "script: |\n  echo one\n" in text
    assert "&lt;script&gt;" in text
    assert "other" not in text
    assert "Definition" not in said(reader.get("/papers@2/COMMIT"))


def test_edges_are_shown_as_workflow_files_write_them(reader: httpx.Client, archive: AnArchive) -> None:
    edges = "depends: [a, PREV, 'PREV:a', {task: b, when: settled}, {task: 'PREV:*', except: [b]}]\ncancels: [PREV, {task: 'PREV:a', only: unstarted}]"
    archive.commit({"a": "", "b": "", "c": edges})
    text = reader.get("/papers@2/c").text
    assert "depends:\n- a\n- PREV\n- PREV:a\n- task: b\n  when: settled\n- task: PREV:*\n  except:\n  - b\n" in text
    assert "cancels:\n- PREV\n- task: PREV:a\n  only: unstarted\n" in text


def test_the_workspace_of_a_running_attempt_has_its_place(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": "checkout: [docs/, '*.tex']", "gate": "# gate"})
    attempt = archive.attempt("a@2")
    page = said(reader.get("/papers@2/a"))
    assert f"Workspace work/{attempt}/tree in the home folder of its task manager" in page
    assert "Checkout docs/, *.tex" in page
    assert "Ran on" in page
    assert "Used" not in page
    archive.record(attempt, End.EXITED, 0, usage=Usage(3.2, 104 << 20, sampled=True))
    assert "Used at least 3.2 s of processor time and 104 MiB of memory" in said(reader.get("/papers@2/a"))
    assert "Used at least 3.2 s of processor time in 1 attempt, at least 104 MiB" in said(reader.get("/papers@2"))
    assert "Workspace" not in said(reader.get("/papers@2/a"))
    assert "Checkout" not in said(reader.get("/papers@2/gate"))


def test_a_task_shows_the_digest_of_the_image_in_which_each_attempt_ran(
    reader: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"a": "image: debian:13"})
    assert "Image debian:13" in said(reader.get("/papers@2/a"))
    digests = [f"sha256:{digit * 64}" for digit in "ab"]
    for number, digest in enumerate(digests, 1):
        attempt = archive.attempt("a@2")
        claim.reserve(archive.session, PROCESS, attempt, digest, 60)
        assert f"Image {digest}" in said(reader.get("/papers@2/a"))
        archive.fail("a@2")
        if number == 1:
            archive.retry("a@2")
    assert f"Image {digests[0]}" in said(reader.get("/papers@2/a?attempt=1"))
    assert f"Image {digests[1]}" in said(reader.get("/papers@2/a"))


def test_a_task_shows_the_scratch_folder_that_it_works_in(
    reader: httpx.Client, session: Session, archive: AnArchive
) -> None:
    archive.commit({"a": "scratch: run", "b": ""})
    assert "Scratch" not in said(reader.get("/papers@2/a"))
    archive.claim("a@2")
    assert scratch.take(session, PROCESS, "store-1", archive.attempt("a@2")) is not None
    archive.sql("update scratch set bytes = 3145728 where run_id = %s", RunId(archive.run_id(2)))
    assert "Scratch 1 folder on store-1, 3.0 MiB" in said(reader.get("/papers@2/a"))
    assert "Scratch" not in said(reader.get("/papers@2/b"))


def buttons(page: httpx.Response) -> list[tuple[str, str, str, bool]]:
    """The buttons at the head of a page: the thing, the verb, the words, and whether it is the filled one."""
    head = page.text.partition('<div class="head">')[2].partition('<div class="says">')[0]
    form = r'name="name" value="([^"]*)"><input type="hidden" name="verb" value="([^"]*)".*?<button class="b ?([^"]*)"[^>]*>([^<]*)<'
    asks = ("prioritize", "hold", "note")  # whose filled button is below a question
    found = [(name, verb, words, "do" in look.split()) for name, verb, look, words in re.findall(form, head, re.S)]
    return [one for one in found if one[1] not in asks]


def release_is_filled(page: httpx.Response) -> bool:
    """Whether the button that asks why a task is released is the filled one of its page."""
    (look,) = re.findall(r'<summary class="b ([^"]*)">Release</summary>', page.text)
    assert set(look.split()) <= {"do"}, (
        "the class of long words is for buttons: it leaves those of a summary at its top"
    )
    return "do" in look.split()


def test_the_remedies_of_a_wait_are_its_buttons(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"upload": ""})
    archive.fail("upload@2")
    archive.commit({"upload": "depends: [PREV]"})
    page = operator.get("/papers@3/upload")
    assert buttons(page)[:3] == [
        ("papers@2/upload", "retry", "Retry 2/upload", True),
        ("papers@2/upload", "skip", "Waive 2/upload", False),
        ("papers@3/upload", "cancel", "Cancel", False),
    ]
    menu = page.text.partition("<main")[2].partition('class="menu"')[2]
    assert 'name="verb" value="hold"' in menu.partition("</div>")[0], "what hinders is behind the menu"
    asked = first(operator, "papers@2/upload", "skip")
    assert "1 task would be free to start papers@3/upload" in said(asked)
    press(operator, "/papers@3/upload", "papers@2/upload", "retry")
    assert archive.state("upload@2") == "ready"


def test_the_retry_of_a_repaired_failure_has_the_words_of_the_overview(
    operator: httpx.Client, archive: AnArchive
) -> None:
    for _ in range(2):
        archive.commit({"pdf": "", "publish": "depends: [pdf]"})
    archive.fail("pdf@2")
    archive.end("pdf@3")
    for page, words in (
        ("/papers@2/publish", "Retry 2/pdf all the same"),
        ("/papers@2/pdf", "Retry all the same"),
    ):
        shown = operator.get(page)
        assert buttons(shown)[0][:3] == ("papers@2/pdf", "retry", words), page
        assert shown.text.count('name="force" value="yes"') == 1, page
    told = {"form": form_of(shown), "name": "papers@2/pdf", "verb": "retry", "force": "yes", "back": "/"}
    asked = operator.post("/-/act", data=told)
    assert archive.state("pdf@2") == "failed", "the consequences come first"
    confirm(operator, asked)
    assert archive.state("pdf@2") == "ready"


def test_the_remedies_of_several_items_are_for_the_whole_list(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pack": "foreach: [x, y, z]", "index": "depends: [pack]"})
    archive.fail("pack/x@2", "pack/y@2")
    page = operator.get("/papers@2/index")
    every = "papers@2/pack/*"
    assert buttons(page)[:2] == [
        (every, "retry", "Retry 2/pack/*", True),
        (every, "skip-as-completed", "Count 2/pack/* as completed", False),
    ]
    told = {"form": form_of(page), "name": every, "verb": "skip-as-completed", "state": "failed", "back": "/"}
    assert 'name="state" value="failed"' in page.text
    asked = operator.post("/-/act", data=told)
    assert "papers@2/pack/z" not in said(asked)
    confirm(operator, asked)
    archive.run("pack/z@2", "index@2")


def test_a_task_of_a_paused_archive_is_resumed_on_its_page(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"upload": ""})
    press(operator, "/papers@2/upload", "papers", "pause", "disk")
    assert ("papers", "resume", "Resume papers", True) in buttons(operator.get("/papers@2/upload"))
    press(operator, "/papers@2/upload", "papers", "resume")
    assert [one for one in buttons(operator.get("/papers@2/upload")) if one[3]] == []


def test_a_held_task_is_released_and_a_failed_one_retried_by_the_filled_button(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"held": "hold: true", "bad": "", "runs": ""})
    archive.fail("bad@2")
    assert buttons(operator.get("/papers@2/held"))[0] == ("papers@2/held", "release", "Release", True)
    found = buttons(operator.get("/papers@2/bad"))
    assert found[0] == ("papers@2/bad", "retry", "Retry", True)
    assert [verb for _, verb, _, _ in found][:3] == ["retry", "skip", "skip-as-completed"]
    assert [one[3] for one in buttons(operator.get("/papers@2/runs")) if one[1] in ("cancel", "restart")] == [False] * 2


def test_the_filled_button_of_a_held_task_that_waits_for_others_helps_these(
    operator: httpx.Client, archive: AnArchive
) -> None:
    workflow = {"upload": "depends: [PREV]", "publish": "depends: [upload]\nhold: true"}
    for _ in range(2):
        archive.commit(workflow)
    archive.fail("upload@2")
    page = operator.get("/papers@3/publish")
    assert buttons(page)[0] == ("papers@2/upload", "retry", "Retry 2/upload", True)
    assert not release_is_filled(page)
    assert "It still waits for papers@3/upload, and may start after that." in said(page)
    assert press(operator, "/papers@3/publish", "papers@3/publish", "release").status_code == 303
    assert archive.state("publish@3") == "waiting"
    archive.retry("upload@2")
    archive.run("upload@2", "upload@3")
    assert archive.state("publish@3") == "ready"


def test_the_release_of_a_held_task_is_filled_once_the_tasks_before_it_have_completed(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"upload": "", "publish": "depends: [upload]\nhold: true"})
    assert not release_is_filled(operator.get("/papers@2/publish"))
    archive.run("upload@2")
    page = operator.get("/papers@2/publish")
    assert release_is_filled(page)
    assert "It may start then." in said(page)


def test_the_release_of_a_run_or_an_item_is_filled_if_one_of_its_tasks_waits_for_nothing_else(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"check": "foreach: [x]", "store": "depends: [check]\nforeach: [x]\nhold: true"})
    filled = re.compile(r'<button class="b do" data-verb="release"|<summary class="b do">Release<')
    of_list = "/papers@2?list=store"
    pages = ("/papers@2", "/papers@2/*/x", of_list)
    assert [page for page in pages if filled.search(operator.get(page).text)] == []
    assert "2 tasks wait." in said(operator.get(of_list))
    archive.run("check/x@2")
    assert [page for page in pages if filled.search(operator.get(page).text)] == [*pages]
    assert "1 item of store waits for a release." in said(operator.get(of_list))


def test_the_nearest_release_of_a_held_task_is_its_button_and_the_wider_ones_are_in_the_menu(
    operator: httpx.Client, archive: AnArchive
) -> None:
    press(operator, "/papers", "papers", "hold")
    archive.commit({"a": ""})
    press(operator, "/papers", "papers", "unhold")
    page = operator.get("/papers@2/a")
    head, _, menu = page.text.partition('class="menu"')[2].partition("</nav>")[2].partition('class="menu"')
    releases = re.findall(r'name="name" value="([^"]*)"><input type="hidden" name="verb" value="release"', head)
    assert releases == ["papers@2/a"]
    assert ("papers@2/a", "release", "Release", True) in buttons(page)
    wider = re.findall(r'name="name" value="([^"]*)"><input type="hidden" name="verb" value="release"', menu)
    assert wider == ["papers", "papers@2"]
    archive.commit({"a": ""})
    archive.run("a@3")
    page = operator.get("/papers@2/a")
    head, _, menu = page.text.partition('class="menu"')[2].partition("</nav>")[2].partition('class="menu"')
    assert ("papers@2/a", "release", "Release all the same", True) in buttons(page)
    assert "It may replace newer results with older ones." in said(page)
    assert head.count('name="force" value="yes"') == 1
    form = r'name="name" value="([^"]*)"><input type="hidden" name="verb" value="release".*?name="skip_outdated" value="yes">.*?>([^<]+)</button>'
    assert re.findall(form, menu) == [("papers", "Release the rest of papers"), ("papers@2", "Release the rest of 2")]
    told = {"form": form_of(page), "name": "papers@2/a", "verb": "release", "force": "yes", "back": "/"}
    asked = operator.post("/-/act", data=told)
    assert "A plain release would be refused : papers@2/a: would replace the work of later revisions" in said(asked)
    confirm(operator, asked)
    assert archive.state("a@2") == "ready"


def test_the_page_of_a_failed_task_leads_to_the_tasks_that_wait_for_it(
    operator: httpx.Client, session: Session
) -> None:
    archive = an_archive(session, "maps")
    archive.commit({"upload": "depends: [PREV]"})
    archive.commit({"upload": "depends: [PREV]"})
    archive.fail("upload@2")
    page = operator.get("/maps@2/upload")
    assert re.search(r"A task waits for it: maps@3/upload ?\.", said(page))
    assert '<dt>Waits for it</dt><dd><a href="/maps@3/upload">' in page.text
    archive.skip("upload@2")
    assert "Waits for it" not in operator.get("/maps@2/upload").text


def test_a_task_that_is_stopping_is_not_stopped_again(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.claim("a@2")
    assert {verb for _, verb, _, _ in buttons(operator.get("/papers@2/a"))} >= {"cancel", "restart"}
    archive.cancel("a@2")
    assert not {verb for _, verb, _, _ in buttons(operator.get("/papers@2/a"))} & {"cancel", "restart"}
    table = operator.get("/papers@2").text.partition('id="tasks"')[2]
    assert 'value="cancel"' not in table.partition("</table>")[0]


def test_a_long_note_is_shown_by_its_beginning(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.fail("a@2")
    press(operator, "/papers@2/a", "papers@2/a", "note", "begin " + "x" * 9000 + " end")
    for address in ("/papers@2/a", "/papers@2"):
        page = operator.get(address).text
        for text in re.findall(r"begin x+<details class=\"long\".*?</details>", page, re.DOTALL):
            assert "… and 8,710 characters more</summary>" in text
            assert text.endswith(" end</details>")
        assert len(re.findall("begin x+<details", page)) == page.count('class="long"') > 0, address
    assert f"noted by operate test: begin {'x' * 93}…<" in operator.get("/papers@2").text


def test_an_attempt_that_was_deferred_has_not_failed(reader: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.end("a@2", 75)
    attempts = reader.get("/papers@2/a").text.partition('aria-label="Attempts"')[2].partition("</aside>")[0]
    assert 'title="deferred"' in attempts
    assert "exit 75" in attempts
    assert 'title="failed"' not in attempts


def test_an_attempt_that_was_stopped_has_not_failed_and_needs_no_button(
    operator: httpx.Client, archive: AnArchive
) -> None:
    for _ in range(2):
        archive.commit({"pdf": "cancels: [PREV]"})
        archive.claim("pdf@2")
    archive.end("pdf@2", 143, End.STOPPED)
    page = operator.get("/papers@2/pdf").text
    attempts = page.partition('aria-label="Attempts"')[2].partition("</aside>")[0]
    assert 'title="canceled"' in attempts
    assert '<td class="soft">stopped</td>' in attempts
    assert '<button class="b " data-verb="retry">Run it again</button>' in page, "what superseded it is newer"


def test_of_thousands_of_attempts_a_page_lists_some(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"a": ""})
    archive.end("a@2", 75)
    archive.sql(
        'insert into attempt (task_id, number, kind, process, host, lease_until, started_at, ended_at, exit_code, "end")'
        " select task_id, n, 'poll', process, host, lease_until, started_at, ended_at, 75, 'exited' from attempt, generate_series(2, 2000) n"
    )
    newest = "(select id from attempt where number = 2000)"
    archive.sql(f"update task set attempts = 2000, attempt_id = {newest} where id = %s", archive.task("a@2"))

    def listed(query: str = "") -> tuple[list[int], list[int]]:
        page = operator.get(f"/papers@2/a{query}").text
        part = page.partition('aria-label="Attempts"')[2].partition("</aside>")[0]
        rows, _, links = part.partition("</tbody>")
        return tuple([*map(int, re.findall(r'href="\?attempt=(\d+)"', some))] for some in (rows, links))  # type: ignore[return-value]

    shown, links = listed()
    assert shown == [*range(2000, 1970, -1)]
    assert ">poll, exit 75</td>" in operator.get("/papers@2/a").text
    seen = {*shown}
    while links:
        some, links = listed(f"?attempt={links[-1]}")
        assert len(some) == 30
        seen |= {*some}
        links = links if min(some) > 1 else []
    assert seen == {*range(1, 2001)}
    assert listed("?attempt=1")[1] == [45], "only later ones"
    for address, most in (("/papers@2/a", 2 * 30 + 1), ("/papers@2/a?attempt=1000", 2 * 30 + 1)):
        with counted_rows() as counts:
            assert said(operator.get(address)).count("poll, exit 75") == 30
        assert max(counts) <= most, "the page reads what it shows"
    document = operator.get("/papers@2/a?attempt=7&format=json").json()
    assert [one["number"] for one in document["task"]["history"]] == [*range(1, 2001)]
    assert (document["attempt"]["number"], document["task"]["attempts"]) == (7, 2000)


def test_a_task_that_ran_out_of_time_says_so_everywhere(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"pdf": ""})
    archive.end("pdf@2", 143, End.TIMED_OUT)
    assert '<td class="soft">timed out</td>' in operator.get("/papers@2/pdf").text
    assert ">timed out</span>" in operator.get("/papers").text


def test_the_newest_note_stands_beside_the_state(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"upload": ""})
    archive.fail("upload@2")
    for text in ("old news", "known: disk of node 3"):
        press(operator, "/papers@2/upload", "papers@2/upload", "note", text)
    page = operator.get("/papers@2/upload").text
    says = page.partition('<div class="says">')[2].partition("</div>")[0]
    assert "known: disk of node 3" in says
    assert "old news" not in says


def test_the_table_of_a_run_says_how_long_a_failure_took_and_why_a_ready_task_waits(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"bad": "", "gpu": "runs_on: [gpu]"})
    archive.claim("bad@2")
    archive.sql("update attempt set started_at = clock_timestamp() - interval '83 seconds'")
    archive.fail("bad@2")
    page = operator.get("/papers@2")
    assert "ready: no task manager" in said(page)
    (row,) = [row for row in page.text.split('<tr class="of-task">')[1:] if 'href="/papers@2/bad"' in row]
    assert re.search(r'<td class="num">1:2\d</td>', row), row


def test_the_table_of_a_run_says_how_far_its_tasks_are_and_when_they_may_end(
    operator: httpx.Client, archive: AnArchive
) -> None:
    tasks = {"index": "", "pdf": "depends: [index]", "new": "depends: [pdf]"}
    archive.commit({name: tasks[name] for name in ("index", "pdf")})
    archive.run("index@2", "pdf@2")
    archive.sql("update attempt set started_at = ended_at - interval '100 minutes'")
    archive.commit(tasks)
    claim.register(archive.session, PROCESS, HOST, "build-1", 4)
    archive.claim("index@3")
    assert "Expected end" not in said(operator.get("/papers@2"))

    def rows(began: str) -> list[str]:
        archive.sql("update attempt set started_at = clock_timestamp() - %s::interval where ended_at is null", began)
        return operator.get("/papers@3").text.split('<tr class="of-task">')[1:]

    index, pdf, new = rows("25 minutes")
    assert re.search(r'data-usual="6000.0">.*<rect width="15.0".*>25:0\d<', index)
    assert re.search(r'class="num soft until".*>in 1 h, .*UTC</time>', index)
    assert re.search(r'class="num soft until".*>in 2 h, .*UTC</time>', pdf)
    assert re.search(r'class="num soft until"[^>]*></td>', new), "it has never run"
    index, pdf, _ = rows("101 minutes")
    assert index.count('<rect width="60') == 2, "the bar is full"
    assert ">later than usual</time>" in index


def test_the_page_of_a_run_says_why_a_ready_task_does_not_start_and_what_helps(
    operator: httpx.Client, archive: AnArchive
) -> None:
    archive.commit({"pdf": "", "upload": "depends: [pdf]"})
    assert "pdf : It is ready, but no task manager is running." in said(operator.get("/papers@2"))
    claim.register(archive.session, PROCESS, HOST, "build-1", 4)
    assert "It is ready" not in said(operator.get("/papers@2")), "it is about to start"
    archive.commit({"train": "runs_on: [gpu]"})
    assert "has the label gpu (<code>runs_on</code>)</span>" in operator.get("/papers@3").text
    pauses.pause(archive.session, ArchiveId(archive.id), "a move", "ann")
    page = operator.get("/papers@2")
    assert re.search(r"pdf : .* paused since .* by ann", said(page))
    assert re.search(r'value="resume">.*?<button class="b cut-short do"[^>]*>Resume papers<', page.text)


def test_the_table_of_a_run_says_once_that_a_task_was_superseded(operator: httpx.Client, archive: AnArchive) -> None:
    for _ in range(2):
        archive.commit({"pdf": "cancels: [PREV]"})
    assert " superseded by papers@3/pdf " in said(operator.get("/papers@2"))
    assert "canceled superseded" not in said(operator.get("/papers@2"))


def test_the_reason_of_a_wait_has_links_to_the_holder_and_the_lock(operator: httpx.Client, archive: AnArchive) -> None:
    archive.commit({"b": "lock: deploy", "bb": "lock: deploy"})
    archive.claim("b@2")
    archive.claim_some(2)
    page = operator.get("/papers@2/bb").text
    says = page.partition('<div class="says">')[2].partition("</div>")[0]
    assert '<a href="/papers@2/b"><u>papers@2/b</u></a>' in says
    assert 'the lock <a href="/-/locks"><u>papers/deploy</u></a>' in says


def test_words_between_backticks_are_code_and_nothing_else_is_markup() -> None:
    assert coded("write `only: <b>` in it") == "write <code>only: &lt;b&gt;</code> in it"
    reason = Reason(kind=Why.LOCKED, text="It waits for a@2/b, a@2/bb and <i>.", tasks=["a@2/b", "a@2/bb"])
    links = ", ".join(re.findall('href="([^"]*)"', told(reason)))
    assert links == "/a@2/b, /a@2/bb"
    assert "&lt;i&gt;" in told(reason)
