"""Takes pictures of the pages for `docs/screenshots/`: ``python -m tests.screenshots FOLDER``, or
``make screenshots``.

The installation is real, with invented content: its own server, Git repositories, commits of
several people, and workflow files that fail, wait, and have faults. ``--serve`` keeps the
installation running, prints a link that signs a browser in, and takes no picture.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Page

from tests.browsers import a_browser, program

PATIENCE = 60.0
"""The most seconds until the installation reaches the wanted state."""
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 860}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 760}, "color_scheme": "light", "device_scale_factor": 2},
}
BUILD = """\
- name: index
  depends: [PREV]
  command: ls *.tex | sort > index.txt; echo "indexed $(wc -l < index.txt) documents"
- name: pdf
  depends: [index]
  cancels: [PREV]
  command: |
    for page in $(seq $(cat pages)); do echo "page $page"; sleep 0.5; done
- name: upload
  depends: [pdf, PREV]
  lock: [web-server]
  command: |
    echo "sending paper.pdf"
    if test -f unreachable; then echo "curl: (7) could not reach repository.example.org" >&2; exit 1; fi
- name: deposit
  depends: [upload]
  hold: true
  command: echo deposited
"""
CHECKS = """\
- name: check-links
  command: echo "all links lead somewhere"
- name: spelling
  schedule: "0 3 * * *"
  command: echo "no mistakes"
"""
LIST = """\
- name: tile
  foreach: [a1, a2, a3, a4, b1, b2, b3, b4, c1, c2]
  command: case "$ARKQUEUE_ITEM" in *b3*) echo "b3.tif is damaged" >&2; exit 3;; esac
- name: atlas
  depends: [tile]
  command: echo bound
"""
FORTY = "".join(
    f"- name: volume-{number:02}\n  depends: [{'prepare' if number < 8 else f'volume-{number - 7:02}'}]\n  command: 'test {number} != 23; sleep {10 if number == 18 else 0}'\n"
    for number in range(1, 40)
)
"""Forty tasks: one that prepares, followed by chains of volumes."""
LONG = "rebuild-the-complete-index-of-all-drawings-and-photographs-of-the-harbour-district-1880-to-1911"
NAMES = f"""\
- name: {LONG}
  command: echo "an-output-without-any-space-$(printf 'x%.0s' $(seq 300))"; exit 1
- name: notify-everybody-who-subscribed-to-changes-of-the-collection
  depends: [{LONG}]
  command: echo told
- name: x
  command: echo short
- name: {LONG[:-12]}1912-to-1920
  command: echo done
- name: {LONG[:-12]}1921-to-1930
  command: echo done
"""
SLOW = '- name: mirror\n  lock: [storage]\n  command: for i in $(seq 200); do echo "object $i of 9,412"; sleep 0.5; done\n- name: publish\n  depends: [mirror]\n  command: echo published\n- name: compare\n  lock: [storage]\n  command: echo alike\n'
LETTERS = """\
submission: {schema: letters.json}
tasks:
- name: check
  on: submission
  command: echo "all letters have a date"
- name: deposit
  on: submission
  foreach: submission
  depends: [check]
  hold: true
  command: echo deposited
"""
LETTERS_SCHEMA = '{"type": "array", "items": {"required": ["id", "date"], "properties": {"date": {"type": "string"}}}}'
COLLECTION = "harbour-district-collection-of-drawings-photographs-and-correspondence-1880-to-1911"
COMMITS: dict[str, list[tuple[str, str, Mapping[str, str]]]] = {
    "papers": [
        ("Dee", "Begin", {"paper.tex": "first thoughts\n", "pages": "1"}),
        ("Dee", "Workflow: upload after pdf", {"_workflows/build.yaml": BUILD}),
        ("Ann", "First chapter", {"one.tex": "chapter\n"}),
        ("Ben", "Index: handle umlauts", {"_workflows/checks.yaml": CHECKS}),
        ("Chi", "Spelling", {"one.tex": "Chapter\n"}),
        ("Ann", "New chapter on the harbour, with the drawings of 1911", {"two.tex": "harbour\n", "unreachable": ""}),
    ],
    "thesis": [
        ("Chi", "Begin", {"thesis.tex": "\n"}),
        ("Chi", "Split the build", {"_workflows/main.yaml": "- name: build\n  command: echo built\n- name: print\n  depends: [biuld]\n  command: echo printed\n"}),
    ],
    "maps": [("Ben", "Begin", {"a": ""}), ("Ben", "Import the 1911 survey", {"_workflows/atlas.yaml": LIST})],
    "collections": [("sync", "Begin", {"a": ""}), ("sync", "Nightly sync", {"_workflows/sync.yaml": SLOW})],
    "drawings": [("Ben", "Begin, with workflow files", {"_workflows/build.yaml": BUILD})],
    "encyclopaedia": [
        ("Ann", "Begin", {"a": ""}),
        ("Ann", "All volumes", {"_workflows/volumes.yaml": "- name: prepare\n  command: echo prepared\n" + FORTY}),
        ("Ben", "Volume 17: new plates", {"b": ""}),
    ],
    COLLECTION: [
        ("A Person With A Very Long Name Of The Department Of Rare Books", "Begin", {"a": ""}),
        ("A Person With A Very Long Name Of The Department Of Rare Books", "Describe the photographs of the new quay, which nobody has described since they were taken, and number them anew", {"_workflows/a-workflow-file-with-quite-a-long-name-too.yaml": NAMES}),
    ],
    "letters": [("Dee", "Take in letters", {"_workflows/letters.yaml": LETTERS, "letters.json": LETTERS_SCHEMA})],
    "glossary": [("Dee", "Begin", {"glossary.txt": "ark\n"})],
}  # fmt: skip
LATER: dict[str, list[tuple[str, str, Mapping[str, str]]]] = {
    "papers@6/upload=failed": [("Ben", "Figures in colour", {"figures.tex": "\n", "pages": "400"})],
    "papers@7/pdf=running": [("Ann", "Fix the second chapter", {"two.tex": "Harbour\n"})],
    "papers@8/pdf=running": [],
    "maps@2/atlas=skipped": [],
    "encyclopaedia@3/volume-18=running": [],
    f"{COLLECTION}@2/{LONG}=failed": [],
}  # fmt: skip
"""Commits that wait until a task is in a given state."""
PAGES = {
    "overview": "/", "archive": "/papers", "run": "/papers@6", "list": "/maps@2", "task": "/papers@6/upload", "search": "/-/search?q=chapter",
    "settings": "/-/settings/papers", "trigger": "/-/trigger?of=papers", "cancel": "/papers@8", "log": "/collections@2/mirror", "first-run": "/drawings",
    "forty": "/encyclopaedia", "forty-run": "/encyclopaedia@3", "long": f"/{COLLECTION}", "long-run": f"/{COLLECTION}@2", "graph": f"/{COLLECTION}@2", "find": "/collections@2/mirror?find=OBJECT+1", "long-task": f"/{COLLECTION}@2/{LONG}",
    "mine": "/-/mine?author=Ann", "sessions": "/-/sessions", "more": "/papers@6", "fill": "/-/trigger?of=papers&first=3", "facts": "/papers@6/upload", "removal": "/papers@6/upload",
    "trigger-preview": "/-/trigger?of=papers", "submit": "/-/submit/letters", "submit-preview": "/-/submit/letters",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/screenshots"))
    parser.add_argument("--only", nargs="*", default=list(PAGES), help="names of pages")
    parser.add_argument("--serve", action="store_true", help="keep the installation and take no picture")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="arkqueue-pictures-"))
    try:
        with installation(home) as api:
            if given.serve:
                print(api.base_url.join(link(api)), home, flush=True)
                sys.stdin.read()
                return
            given.folder.mkdir(parents=True, exist_ok=True)
            take(api, given.folder, given.only)
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def installation(home: Path) -> Iterator[httpx.Client]:
    """The server with its archives in their wanted state. Yields an API client with an
    administrator's token.
    """
    environment = os.environ | {"ARKQUEUE_MIN_FREE": "0"}
    command = [
        sys.executable,
        "-m",
        "arkqueue",
        "--home",
        str(home),
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--slots",
        "6",
    ]
    with (home / "serve.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        address = home / "url"
        wait(lambda: address.exists() and address.read_text())
        token = (home / "token").read_text().strip()
        url = address.read_text().strip()
        with httpx.Client(base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=30) as api:
            for name, commits in COMMITS.items():
                first = repository(home / name, commits)
                new = {"name": name, "url": str(home / name), "process": True, "start": first}
                api.post("/api/v1/archives", json=new).raise_for_status()
            for moment, commits in LATER.items():
                name, _, wanted = moment.partition("=")
                wait(lambda: state(api, name) == wanted)  # noqa: B023  it is asked before the next one
                commit(home / name.partition("@")[0], commits)
                api.post(f"/api/v1/archives/{name.partition('@')[0]}/sync").raise_for_status()
            yield api
    finally:
        server.terminate()
        server.wait()


def repository(path: Path, commits: list[tuple[str, str, Mapping[str, str]]]) -> str:
    """Makes a Git repository with these commits. Returns the id of the first commit."""
    path.mkdir()
    git(path, "init", "--quiet", "--initial-branch=main")
    commit(path, commits)
    return git(path, "rev-list", "--max-parents=0", "HEAD")


def commit(path: Path, commits: list[tuple[str, str, Mapping[str, str]]]) -> None:
    for author, message, files in commits:
        for name, text in files.items():
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).write_text(text)
        git(path, "add", "--all")
        who = ("-c", f"user.name={author}", "-c", f"user.email={author.lower()}@example.org")
        git(path, *who, "commit", "--quiet", "--allow-empty", "-m", message)


def git(path: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(path), *words], check=True, capture_output=True, text=True).stdout.strip()


def state(api: httpx.Client, name: str) -> str:
    """The state of a task, or an empty text if the task does not exist yet."""
    run, _, task = name.partition("/")
    archive, _, number = run.partition("@")
    found = api.get("/api/v1/runs", params={"archive": archive, "rev": number, "tasks": "true"}).json()["runs"]
    return next((one["state"] for one in found[0]["tasks"] if one["name"] == task), "") if found else ""


def link(api: httpx.Client) -> str:
    made = api.post("/api/v1/sign-in-links")
    made.raise_for_status()
    return str(made.json()["path"])


def take(api: httpx.Client, folder: Path, only: list[str]) -> None:
    """Takes one picture of each page in each of `LOOKS`."""
    if program() is None:
        sys.exit("a browser is missing: apt-get install chromium")
    with a_browser() as browser:
        for look, options in LOOKS.items():
            context = browser.new_context(base_url=str(api.base_url), **options)
            page = context.new_page()
            page.goto(link(api))
            for name in only:
                page.goto(PAGES[name])
                arrange(page, name)
                page.screenshot(path=folder / f"{name}-{look}.png")
            context.close()


def arrange(page: Page, name: str) -> None:
    """Prepares a page as a person would before the picture."""
    if name == "archive":
        page.locator('.grid a[href="/papers@8/pdf"]').focus()
        page.locator(".edges path").first.wait_for(state="attached")
    if name == "cancel":
        page.get_by_role("button", name="Cancel").first.click()
        page.get_by_text("What would change").wait_for()
    if name.startswith("submit"):
        page.get_by_label("or a text").fill(
            '[{"id": "1911-03-04", "date": "4 March 1911"},\n {"id": "1911-03-09", "date": "9 March 1911"}]'
        )
        page.get_by_label("Written in").select_option("json")
    if name in ("trigger-preview", "submit-preview"):
        page.get_by_role("button", name="Show what would run").click()
        page.get_by_text("No, go back").wait_for()
    if name == "more":
        page.get_by_label("More").click()
    if name == "removal":
        page.get_by_label("More").click()
        page.get_by_role("button", name="Purge its log").click()
        page.get_by_text("What would change").wait_for()
    if name == "graph":
        page.locator(".graph").scroll_into_view_if_needed()
        page.locator(".scroll:has(> .graph)").evaluate("one => one.scrollLeft = 340")
    if name == "facts":
        page.get_by_text("Inputs", exact=False).first.click()
        page.get_by_text("Definition", exact=False).first.click()
        page.locator("#definition").scroll_into_view_if_needed()
    if name == "log":
        page.locator(".seen > div").nth(10).wait_for()


def wait(happened: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > deadline:
            sys.exit("the installation does not look as it should: see serve.log in its home folder")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
