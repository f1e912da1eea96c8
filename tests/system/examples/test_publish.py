"""The application ``workflows-examples/publish``: each sentence of its README, with real
repositories, tasks and readers.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any

import docker
import pypdf
import pytest
import yaml
from playwright.sync_api import Browser, expect
from publish import pdf_image
from publish import run as program

from tests.loaded import write_python
from tests.repositories import Content, GitRepository, Link
from tests.system.deployment.conftest import base
from tests.system.end_to_end.conftest import Archives, _sound, archives, kind, shared
from tests.system.end_to_end.installation import TRACEBACK, Archive, Installation, environment, processes_of
from tests.system.end_to_end.test_schedules import let_be_due, schedules
from tests.system.pages.conftest import browser
from tests.waiting import eventually

__all__ = ["_sound", "archives", "base", "browser", "kind", "shared"]

TOOLS = program.HERE / "archive" / "tools"
HERON = "documents/field-notes/heron.md"


class Papers(Archive):
    """An archive of the example, whose revisions come from the test and from the task ``contents``."""

    folder: Path
    """The folder that stays: what workflow files call ``/srv/papers``."""

    @property
    def site(self) -> Path:
        return self.folder / "site"

    @property
    def published(self) -> int:
        """The revision whose page and PDF a reader sees."""
        with Opened(self.site) as opened:
            return opened.number

    def commit(self, changes: Any, **options: Any) -> int:
        """On top of what the task ``contents`` has committed."""
        if isinstance(self.repository, GitRepository):
            self.repository.git("pull", "-q", "--rebase", "origin", "main")
        return super().commit(changes, **options)

    def check(self) -> None:
        """Trigger the nightly check at the newest revision; it compares the index with one that is made anew."""
        done = self.installation("trigger", self.name, "nightly-check", "--wait", code=None)
        said = self.installation("logs", f"{done.out.strip()}/nightly-check").out
        assert (done.code, said) == (0, "no differences\n")


class Opened:
    """What a reader has who has opened the site once."""

    def __init__(self, site: Path) -> None:
        self._folder = os.open(site, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)

    def read(self, name: str) -> bytes:
        with open(os.open(name, os.O_RDONLY, dir_fd=self._folder), "rb") as file:
            return file.read()

    @property
    def data(self) -> Any:
        """The search page's data."""
        return json.loads(re.findall(r"^const data = (.*);$", self.read("index.html").decode(), re.MULTILINE)[0])

    @property
    def number(self) -> int:
        """The revision of the page, of the PDF and of the release's own record, which is one."""
        title = pypdf.PdfReader(io.BytesIO(self.read("papers.pdf"))).metadata
        assert title is not None
        numbers = {
            self.data["number"],
            int(str(title.title).removeprefix("Papers, revision ")),
            json.loads(self.read("release.json"))["number"],
        }
        assert len(numbers) == 1, numbers
        return int(numbers.pop())


@pytest.fixture
def papers(shared: Installation, archives: Archives, kind: str, tmp_path: Path) -> Papers:
    """The example's archive after its first commits: revision 2 has all files, and revision 3 is what `contents` has committed."""
    made = archives(shared, kind)
    made.__class__ = Papers
    assert isinstance(made, Papers)
    made.folder = tmp_path / "papers"
    (made.folder / "builds").mkdir(parents=True)
    # The tools start with their modules imported, which saves a PDF 0.7 s. The tests of the program
    # that shows the example start them as a person does.
    write_python(tmp_path / "python3", "weasyprint", "markdown", "sqlite3")
    files: dict[str, Content] = {
        path: text.replace("[python3,", f"[{tmp_path}/python3,") if path.startswith("_workflows/") else text
        for path, text in program.archive_files(made.folder, in_container=False).items()
    }
    made.commit({**files, "_workflows/spelling.yaml": program.SPELLING})
    made.wait_for_run(2)
    made.wait_for_run(3)
    made.number = 3
    return made


only_subversion = pytest.mark.parametrize("kind", ["subversion"])
git_takes_as_long = pytest.mark.parametrize("kind", ["subversion", pytest.param("git", marks=pytest.mark.full)])


@git_takes_as_long
def test_page_and_pdf_of_a_commit_are_published_and_the_committed_contents_end_there(papers: Papers) -> None:
    with Opened(papers.site) as opened:
        assert opened.number == 2
        assert [one["title"] for one in opened.data["documents"]] == [
            "The grey heron", "Otters in the lower meadow", "Welcome"
        ]  # fmt: skip
        assert opened.data["words"]["cafe"] == [0], "accents make no difference"
        (papers.folder / "a.pdf").write_bytes(opened.read("papers.pdf"))
    text = "".join(page.extract_text() for page in pypdf.PdfReader(papers.folder / "a.pdf").pages)
    assert "Otters in the lower meadow" in text
    assert [*(papers.folder / "builds").iterdir()] == []

    committed = papers.shown(3)
    assert (committed["origin"], committed["generation"]) == (papers.task("contents@2"), 1)
    assert set(papers.states(3)) == {"indexing@3", "spelling@3"}
    papers.installation("sync", papers.name, "--wait")
    assert papers.ledger() == [1, 2, 3]


@pytest.mark.full
def test_later_commits_are_published_and_only_those_that_change_the_contents_have_them_committed(
    papers: Papers,
) -> None:
    papers.commit({HERON: None, "documents/pond.md": "# A new pond\n", "documents/link.md": Link("welcome.md")})
    papers.wait_for_run(4)
    papers.wait_for_run(5)
    assert papers.shown(5)["origin"] == papers.task("contents@4")
    papers.installation("sync", papers.name, "--wait")
    assert papers.ledger() == [1, 2, 3, 4, 5]
    papers.number = 5
    papers.commit({"documents/pond.md": "# A new pond\n\nFrozen.\n"})
    papers.wait_for_run(6)
    assert papers.log("contents@6") == "CONTENTS.md is up to date\n"
    papers.installation("sync", papers.name, "--wait")
    assert papers.ledger() == [1, 2, 3, 4, 5, 6]
    assert papers.published == 6
    assert "made anew" not in papers.log("indexing@6")
    papers.check()


@pytest.mark.full
@only_subversion
def test_pdf_that_is_being_built_is_superseded_and_holds_up_no_index(papers: Papers, tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = (TOOLS / "build_pdf.py").read_text("utf-8")
    begin = "def main() -> None:\n"
    assert begin in slow
    wait = f"    import time\n    while not os.path.exists({str(go)!r}):\n        time.sleep(0.02)\n"
    papers.commit({"tools/build_pdf.py": slow.replace(begin, begin + wait)})
    papers.wait("build-PDF@4", "running")
    papers.commit({HERON: "# The grey heron\n\nGone.\n"})
    papers.wait("indexing@5")
    papers.wait("build-PDF@4", "canceled")
    assert papers.state("publish@4") == "skipped"
    assert f"superseded by {papers.task('build-PDF@5')}" in papers.explained("build-PDF@4")
    assert papers.published == 2
    go.touch()
    papers.wait_for_run(5)
    assert papers.published == 5
    papers.wait_for_run(4, "superseded")


@pytest.mark.full
@only_subversion
def test_an_older_revision_never_replaces_what_a_newer_one_has_published(papers: Papers) -> None:
    papers.commit({HERON: "# The grey heron\n\nGone.\n"})
    papers.wait_for_run(4)
    again = ["indexing", "search-page", "build-PDF", "publish"]
    papers.installation("trigger", papers.name, *again, "--revision", "2", code=1)
    papers.installation("trigger", papers.name, *again, "--revision", "2", "--force")
    papers.wait("publish@2.2", "rejected")
    assert papers.published == 4
    assert "revision 4 is published, and an older one, 2, never replaces it." in papers.log("publish@2.2")
    # The index went back with the rest, and the next commit brings it forward from there.
    papers.commit({"documents/pond.md": "# A new pond\n"})
    papers.wait_for_run(5)
    papers.wait_for_run(6)
    assert papers.published == 5
    assert papers.log("indexing@5").startswith("3 changed files")
    papers.check()


@pytest.mark.full
@only_subversion
def test_nightly_check_runs_by_its_schedule_and_finds_what_is_missing_in_the_index(papers: Papers) -> None:
    (schedule,) = schedules(papers)
    assert (schedule["tasks"], schedule["cron"], schedule["zone"]) == (["nightly-check"], "30 3 * * *", "Europe/Berlin")
    let_be_due(papers)
    papers.wait("nightly-check@3.2")
    assert papers.log("nightly-check@3.2") == "no differences\n"
    index = sqlite3.connect(papers.folder / "index.sqlite")
    with index:
        index.execute("delete from words where rowid = (select id from document where title = 'Welcome')")
    index.close()
    let_be_due(papers)
    papers.wait("nightly-check@3.3", "failed")
    said = papers.log("nightly-check@3.3")
    assert "documents: 0 too many, 1 missing" in said
    assert "documents without words" in said


@pytest.mark.full
@only_subversion
def test_old_tasks_are_looked_up_although_their_workflow_files_are_gone(papers: Papers) -> None:
    gone: dict[str, Content] = dict.fromkeys(("spelling.yaml", "publish.yaml", "pdf.yaml"))
    papers.commit({f"_workflows/{name}": None for name in gone})
    papers.wait_for_run(4)
    assert papers.states(4) == {}
    arkqueue = papers.installation
    assert papers.log("spelling@2") == "no mistakes\n"
    assert papers.log("publish@2").startswith("revision 2 is published: ")
    shown = arkqueue("show", papers.task("build-PDF@2")).out
    assert "/python3 tools/build_pdf.py" in shown
    assert papers.explained("spelling@2") != ""
    assert "completed" in papers.explained("indexing@3")
    assert arkqueue(
        "trigger", papers.name, "spelling", "--revision", "2", "--force", "--wait"
    ).out.strip() == papers.run(2, 2)
    assert papers.log("spelling@2.2") == "no mistakes\n"
    assert arkqueue("trigger", papers.name, "spelling", code=None).code != 0


def test_process_makes_the_pdf_by_the_same_task_as_the_container() -> None:
    """The file that stands in where no engine answers differs in what only a container has, and in where Python is."""
    container, process = (
        yaml.safe_load((program.HERE / place / "pdf.yaml").read_text("utf-8"))[0]
        for place in ("archive/_workflows", "process")
    )
    assert container.keys() - process.keys() == {"image", "network", "user", "resources", "mounts"}
    assert process["env"].pop("PATH")
    assert process == {key: container[key] for key in process}


# --- The tools by themselves -----------------------------------------------------------------------------------------


def tool(name: str, folder: Path, work: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a tool of the archive as a task does; ``work`` is its workspace."""
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PAPERS": str(folder)} | variables
    command = [sys.executable, str(TOOLS / f"{name}.py")]
    return subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)


class Publisher:
    """Publishes revisions whose page and PDF are no more than their numbers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.builds = folder / "builds"
        self.builds.mkdir()

    def build(self, number: int) -> dict[str, str]:
        """What the tasks before have built; the variables of the task ``publish``."""
        for ending in ("html", "pdf"):
            (self.builds / f"{number}.{ending}").write_text(str(number))
        outputs = {
            "search-page": {"file": f"{number}.html", "number": number},
            "build-PDF": {"file": f"{number}.pdf", "number": number, "pages": 1},
        }
        (self.folder / "inputs").write_text(json.dumps(outputs))
        return {"ARKQUEUE_INPUTS": str(self.folder / "inputs"), "ARKQUEUE_REVISION": f"r{number}"}

    def publish(self, number: int) -> int:
        return tool("publish", self.folder, self.folder, **self.build(number)).returncode

    def seen(self) -> set[int]:
        """The revisions of what one reader sees; never more than one."""
        with Opened(self.folder / "site") as opened:
            return {
                int(opened.read("index.html")),
                int(opened.read("papers.pdf")),
                json.loads(opened.read("release.json"))["number"],
            }


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path)


def test_a_reader_sees_page_and_pdf_of_one_revision_while_others_are_published(publisher: Publisher) -> None:
    assert publisher.publish(1) == 0
    seen: list[set[int]] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            seen.append(publisher.seen())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(2, 7):
            assert publisher.publish(number) == 0
    finally:
        is_over.set()
        reader.join()
    numbers = [number for one in seen for number in one]
    assert all(len(one) == 1 for one in seen)
    assert numbers == sorted(numbers)
    assert len({*numbers}) > 2
    assert sorted(path.name for path in (publisher.folder / "releases").iterdir() if path.is_dir()) == ["5", "6"]


def test_older_revisions_are_rejected_and_the_newest_again_is_nothing_to_do(publisher: Publisher) -> None:
    assert [publisher.publish(number) for number in (5, 4, 5, 10, 9)] == [0, 65, 0, 0, 65]
    assert publisher.seen() == {10}


KILLED = """
import os, runpy, signal, sys
count = 0
def hook(event, arguments):
    global count
    count += event.partition(".")[0] in ("os", "shutil") or event == "open"
    if count == {point}:
        os.kill(os.getpid(), signal.SIGKILL)
sys.path.insert(0, {folder!r})
import fcntl, json, shutil, pathlib
sys.addaudithook(hook)
runpy.run_path({program!r}, run_name="__main__")
"""


def killed(publisher: Publisher, point: int, env: dict[str, str]) -> int:
    """Publish, and die before that file operation; the exit code."""
    script = KILLED.format(point=point, folder=str(TOOLS), program=str(TOOLS / "publish.py"))
    variables = {"PAPERS": str(publisher.folder), "LANG": "C.UTF-8", **env}
    return subprocess.run([sys.executable, "-c", script], env=variables, capture_output=True, check=False).returncode


@pytest.mark.full
def test_whenever_publishing_is_killed_the_site_is_of_one_revision_and_the_next_attempt_ends_it(
    publisher: Publisher,
) -> None:
    assert publisher.publish(1) == 0
    point, number, codes = 1, 2, set[int]()
    while 0 not in codes:
        env = publisher.build(number)
        codes.add(killed(publisher, point, env))
        assert publisher.seen() in ({number - 1}, {number})
        assert tool("publish", publisher.folder, publisher.folder, **env).returncode == 0
        assert publisher.seen() == {number}
        point, number = point + 1, number + 1
    assert codes == {0, -signal.SIGKILL}
    assert point > 20


HOSTILE = (
    "# </script><script>alert(1)</script>\n\n<img src=x onerror=alert(2)> ![shadow](file:///etc/passwd) `sesame`\n"
)


DOCUMENTS = {
    "<b>.md": HOSTILE,
    "long.md": "# Long\n\nsesame seeds\n",
    "greetings.md": "# Grüße\n\nin the Café\n",
}


@pytest.fixture(scope="module")
def papers_of_strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that stays, with what the tools have built of such documents."""
    tmp_path = tmp_path_factory.mktemp("strangers")
    work, folder = tmp_path / "work", tmp_path / "papers"
    (work / "documents").mkdir(parents=True)
    (folder / "builds").mkdir(parents=True)
    for name, text in DOCUMENTS.items():
        (work / "documents" / name).write_text(text, "utf-8")
    (tmp_path / "changes").write_text("[]")
    values = {"BASE": "lost", "REVISION": "7", "NUMBER": "7", "RUN": "1"}
    values |= {"CHANGES": str(tmp_path / "changes"), "OUTPUT": str(tmp_path / "output")}
    for name in ("index", "search_page", "build_pdf"):
        done = tool(name, folder, work, **{f"ARKQUEUE_{name}": value for name, value in values.items()})
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.full
def test_what_a_committer_writes_ends_no_script_and_reads_nothing_into_the_pdf(papers_of_strangers: Path) -> None:
    pdf = pypdf.PdfReader(papers_of_strangers / "builds" / "7.pdf")
    text = "".join(page.extract_text() for page in pdf.pages)
    assert "<img src=x onerror=alert(2)>" in text
    assert "root:" not in text
    assert not any(page.images for page in pdf.pages)
    page = (papers_of_strangers / "builds" / "7.html").read_text("utf-8")
    assert page.count("</script>") == 1


def test_a_document_is_one_line_of_the_table_of_contents_whatever_its_committer_calls_it(tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a\n- forged.md").write_text("# \x1b[31mRed\u2028 <img src=x>\n")
    run = "import sys; sys.path.insert(0, sys.argv[1]); import contents; print(contents.contents())"
    done = subprocess.run([sys.executable, "-c", run, TOOLS], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[2:] == [
        "- \ufffd[31mRed\ufffd &lt;img src=x&gt; (`documents/a\ufffd- forged.md`)",
        "",
    ]


@pytest.mark.parametrize("name", ["index", "search_page", "check"])
def test_a_broken_index_is_named_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "documents").mkdir()
    (tmp_path / "index.sqlite").write_text("what a full disk has left")
    (tmp_path / "changes").write_text("[]")
    values = {"BASE": "", "REVISION": "7", "NUMBER": "7", "RUN": "1", "CHANGES": str(tmp_path / "changes")}
    done = tool(name, tmp_path, tmp_path, **{f"ARKQUEUE_{name}": value for name, value in values.items()})
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path}/index.sqlite: file is not a database. If it is broken, remove it")


@pytest.mark.full
def test_search_page_finds_documents_without_a_server(papers_of_strangers: Path, browser: Browser) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((papers_of_strangers / "builds" / "7.html").as_uri())
    found = page.get_by_role("listitem")
    expect(found).to_have_count(3)
    page.get_by_label("Search all documents").fill("SESAM")
    expect(found).to_have_count(2)
    page.get_by_label("Search all documents").fill("sesame see")
    expect(found).to_have_text(["Long documents/long.md"])
    anchor = str(found.get_by_role("link").get_attribute("href")).partition("#")[2]
    assert anchor in pypdf.PdfReader(papers_of_strangers / "builds" / "7.pdf").named_destinations
    page.get_by_label("Search all documents").fill("cafe")
    expect(found).to_have_text(["Grüße documents/greetings.md"])
    expect(page.get_by_role("status")).to_have_text("1 document")
    page.get_by_label("Search all documents").fill("constructor")
    expect(found).to_have_count(0)
    page.close()
    assert said == []


# --- The program that shows it ---------------------------------------------------------------------------------------


def shows(folder: Path, *words: str, **variables: str) -> str:
    """Run what ``make example-publish`` runs, to its good end; what it says."""
    command = [sys.executable, str(program.HERE / "run.py"), "--folder", str(folder / "all"), *words]
    env = environment(**variables)
    env["PYTHONPATH"] += f":{program.HERE.parent}"
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert TRACEBACK not in done.stdout
    eventually(lambda: not processes_of(str(folder)))
    return done.stdout


def assert_it_shows_what_happened(said: str, folder: Path) -> None:
    """Each part of the story, in the words of the commands that told it."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "origin made by papers@2/contents, generation 1" in lines
    superseded = [
        line
        for line in lines
        if re.fullmatch(r"papers@4/build-PDF canceled \S+ superseded by papers@\d+/build-PDF", line)
    ]
    assert superseded
    short = superseded[0].rpartition("@")[2].partition("/")[0]
    assert any(re.fullmatch(rf"revision {short} is published: \d+ pages", line) for line in lines)
    assert any(f"revision {short} is published, and an older one, 2, never replaces it." in line for line in lines)
    assert "no differences" in lines
    assert lines[lines.index("$ arkqueue logs papers@2/spelling") + 1] == "no mistakes"
    assert f"export ARKQUEUE_HOME={folder}/all/home" in lines
    assert any(re.fullmatch(r"\S+/arkqueue serve --listen 127\.0\.0\.1:\d+", line) for line in lines)
    with Opened(folder / "all" / "papers" / "site") as opened:
        assert opened.number == int(short)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_example_shows_everything_with_a_process_where_no_engine_answers(open_folder: Path) -> None:
    said = shows(open_folder, DOCKER_HOST="unix:///nowhere.sock")
    assert said.startswith("No container engine answers at unix:///nowhere.sock. So the PDF is made by a process")
    assert_it_shows_what_happened(said, open_folder)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_example_builds_its_image_and_makes_the_pdf_in_a_container(
    open_folder: Path, engine: docker.APIClient, engine_url: str, base: str
) -> None:
    try:
        said = shows(open_folder, "--git", "--base", base, DOCKER_HOST=engine_url)
    finally:
        if engine.images(f"{pdf_image.NAME}:1", quiet=True):
            engine.remove_image(f"{pdf_image.NAME}:1", force=True)
    assert said.startswith(f"Building the image {pdf_image.NAME} on {base}")
    assert_it_shows_what_happened(said, open_folder)
    pdf = pypdf.PdfReader(open_folder / "all" / "papers" / "site" / "papers.pdf")
    assert pdf.metadata is not None
    assert pdf.metadata.producer != f"WeasyPrint {version('weasyprint')}", "it is the image's, and older"


@pytest.mark.full
def test_example_names_what_is_missing_where_neither_an_engine_nor_a_process_can_make_the_pdf(tmp_path: Path) -> None:
    (tmp_path / "weasyprint.py").write_text("raise OSError('cannot load library libpango')\n")
    command = [sys.executable, str(program.HERE / "run.py"), "--folder", str(tmp_path / "all")]
    path = f"{tmp_path}:{environment()['PYTHONPATH']}:{program.HERE.parent}"
    env = environment(PYTHONPATH=path, DOCKER_HOST="unix:///nowhere.sock")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "a container engine at unix:///nowhere.sock: does not answer" in done.stderr
    assert "cannot load library libpango" in done.stderr
    assert "apt-get install libpango" in done.stderr
    assert not (tmp_path / "all").exists()


def test_example_names_the_programs_that_are_missing_before_it_makes_anything(tmp_path: Path) -> None:
    command = [sys.executable, str(program.HERE / "run.py"), "--folder", str(tmp_path / "all")]
    env = environment(PYTHONPATH=f"{environment()['PYTHONPATH']}:{program.HERE.parent}", PATH=str(tmp_path))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("svn and svnadmin: are not installed. ")
    assert not (tmp_path / "all").exists()
