"""The indexes of the examples, brought forward by ARKQUEUE_CHANGES alone: at each revision they
equal one that is built anew.

The tasks are `workflows-examples/word-index.yaml`, and `indexing` of the application
`workflows-examples/publish`. Behind each script stands another one, which compares. The histories
have moves, deletions, folders that become files, odd names, branches and merges, keywords;
meanwhile attempts are killed and superseded, and the archive goes back by force.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from arkqueue.model import Revision, Stream
from arkqueue.plan import Entry
from arkqueue.repository import locate, open_archive
from tests.builders import AnArchive, a_workflow
from tests.repositories import Link, a_git_repository, a_subversion_repository, run
from tests.system.repository import git_histories, subversion_histories
from tests.system.repository.subversion_histories import load_project
from tests.system.task_manager.conftest import Managers, log_of, settled
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[3] / "workflows-examples"

HAPPENS = '''
import os, signal

def happens(point):
    """What the test has planned for this point, once: the end of this process, or to be stopped."""
    plan = os.environ["PLAN"]
    if os.path.exists(plan) and open(plan).read() == point:
        os.rename(plan, plan + ".met")
        if point.startswith("wait"):
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)
'''
COMMIT = 'index.execute("commit")\n'
COMPARES = """
kept = index.execute("select word, path from word").fetchall()
anew = set()
for path in files():
    if os.path.isfile(path) and not os.path.islink(path):
        with open(path, "rb") as file:
            anew |= {(word, path) for word in re.findall(rb"\\w+", file.read())}
assert len(kept) == len(set(kept)), "a word is there twice"
assert set(kept) == anew, f"missing: {anew - set(kept)}, stale: {set(kept) - anew}"
print(f"{len(kept)} words")
"""


PUBLISH = """
import runpy, sqlite3, sys

class Connection(sqlite3.Connection):
    def execute(self, text, *values):
        if text != "commit":
            return super().execute(text, *values)
        happens("die before")
        happens("wait before")
        super().execute(text)
        happens("die after")

connect = sqlite3.connect
sqlite3.connect = lambda path, **options: connect(path, factory=Connection, **options)
tools = os.environ["TOOLS"]
sys.dont_write_bytecode = True
sys.path.insert(0, tools)
runpy.run_path(f"{tools}/index.py", run_name="__main__")

import check, index
kept = index.connect(f"{os.environ['PAPERS']}/index.sqlite")
assert index.revision(kept) == os.environ["ARKQUEUE_REVISION"]
assert not check.differences(kept), check.differences(kept)
"""


def of_publish(folder: Path, plan: Path, documents: str = ".") -> str:
    """The task `indexing` of the application `publish`, for all files of the archive or those of a folder, with what is planned and the comparison."""
    tools = EXAMPLES / "publish" / "archive" / "tools"
    env = {"PAPERS": str(folder), "TOOLS": str(tools), "DOCUMENTS": documents, "PLAN": str(plan)}
    fields = {"cancels": ["PREV"], "changes": True, "env": env, "shell": "python3", "script": HAPPENS + PUBLISH}
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())


def of_words(folder: Path, plan: Path) -> str:
    """The fields of `word-index.yaml`, in a place of the test, with what is planned and the comparison."""
    (fields,) = yaml.safe_load((EXAMPLES / "word-index.yaml").read_text("utf-8"))
    assert fields.pop("name") == "word-index"
    fields["env"] = {"INDEX": str(folder / "words.sqlite"), "PLAN": str(plan)}
    script = fields["script"]
    assert script.endswith(COMMIT)
    planned = f'happens("die before")\nhappens("wait before")\n{COMMIT}happens("die after")\n'
    fields["script"] = HAPPENS + script.removesuffix(COMMIT) + planned + COMPARES
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items())


def a_history(archive: AnArchive, folder: Path, kind: str, count: int) -> list[Revision]:
    """A repository with so many revisions, which the archive now is."""
    if kind == "git":
        repository = a_git_repository(folder)
        made = git_histories.RandomHistory(seed=1)
        url, branch = repository.url, "main"
    else:
        repository = a_subversion_repository(folder)
        made = subversion_histories.RandomHistory(seed=1)
        url, branch = f"{repository.url}/trunk", ""
    for _ in range(count + 1):
        made.commit()
    made.load(repository)
    return revisions(archive, url, kind, branch)[:count]


def revisions(archive: AnArchive, url: str, kind: str, branch: str) -> list[Revision]:
    """All revisions of a repository but the first, which the archive's ledger has already. The archive is the repository's from now on."""
    archive.sql("update archive set url = %s, kind = %s", url, kind)
    archive.sql("update branch set name = %s", branch)
    opened = open_archive(locate(url))
    first = "1"
    if kind == "git":
        first = run("git", "--git-dir", url.removeprefix("file://"), "rev-list", "--max-parents=0", "main").split()[-1]
    found = opened.advance(branch, opened.baseline(branch, first), opened.heads()[branch], limit=10_000)
    return [replace(revision, number=number) for number, revision in enumerate(found.revisions, 2)]


Task = Callable[[Path, Path], str]
"""Makes the fields of a task that keeps an index in a folder, where what is planned stands in a file."""


class Story:
    """What happens to the task from revision to revision, told by a seed."""

    def __init__(self, archive: AnArchive, revisions: list[Revision], folder: Path, task: Task) -> None:
        self.archive, self.revisions = archive, revisions
        self.plan = folder / "plan"
        self.tasks = a_workflow({"index": task(folder, self.plan)})
        self.told: Counter[str] = Counter()
        # Nothing is there yet, and all files are new: these changes fit an empty index.
        self.is_anew = task is of_words
        """Whether the next attempt finds an index that is not its base's."""

    def append(self, count: int = 1) -> str:
        """So many revisions at once; the task of the last one."""
        entries = [Entry(revision, self.tasks, ()) for revision in self.revisions[:count]]
        del self.revisions[:count]
        self.archive.append("", entries)
        return f"index@{entries[-1].revision.number}"

    def completes(self, key: str) -> None:
        settled(self.archive, key, "completed")
        said = log_of(self.archive, key, Stream.STDOUT)
        assert ("made anew" in said) is self.is_anew, said
        self.told["made anew" if self.is_anew else "brought forward"] += 1
        self.is_anew = False

    def goes_on(self) -> None:
        self.completes(self.append())

    def is_superseded(self) -> None:
        """Revisions that come together: only the task of the last one begins."""
        last = self.append(3)
        self.completes(last)
        number = int(last.partition("@")[2])
        assert {self.archive.state(f"index@{number - before}") for before in (1, 2)} == {"canceled"}

    def is_superseded_halfway(self) -> None:
        victim = self._planned("wait before")
        key = self.append()
        self.completes(key)
        settled(self.archive, victim, "canceled")

    def dies(self, point: str, *, is_retried: bool) -> None:
        key = self._planned(f"die {point}")
        settled(self.archive, key, "failed")
        self.is_anew = self.is_anew or point == "after"
        if is_retried:
            self.archive.retry(key)
            self.completes(key)

    def goes_back(self, number: int) -> None:
        self.archive.trigger(number, "index", force=True)
        (row,) = self.archive.sql("select max(run) as run from task where name = 'index' and number = %s", number)
        self.completes(f"index@{number}.{row['run']}")

    def _planned(self, what: str) -> str:
        self.plan.write_text(what)
        key = self.append()
        met = self.plan.with_name("plan.met")
        eventually(met.exists)
        met.unlink()
        self.told[what] += 1
        return key


@pytest.mark.parametrize(
    ("task", "count"),
    [
        (of_words, 30),
        pytest.param(of_publish, 30, marks=pytest.mark.full),
        pytest.param(of_words, 60, marks=[pytest.mark.full, pytest.mark.timeout(900)]),
        pytest.param(of_words, 500, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
        pytest.param(of_publish, 500, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
@pytest.mark.parametrize("kind", ["subversion", "git"])
def test_an_index_that_is_brought_forward_equals_one_that_is_built_anew(
    archive: AnArchive, managers: Managers, tmp_path: Path, kind: str, count: int, task: Task
) -> None:
    story = Story(archive, a_history(archive, tmp_path, kind, count), tmp_path, task)
    managers()
    chance = random.Random(count)
    each = [
        story.is_superseded_halfway,
        lambda: story.dies("before", is_retried=True),
        lambda: story.dies("before", is_retried=False),
        lambda: story.dies("after", is_retried=True),
        lambda: story.dies("after", is_retried=False),
        lambda: story.goes_back(chance.randint(2, archive.numbers[""] - 1)),
        story.is_superseded,
    ]
    story.goes_on()
    for step in each:
        story.goes_on()
        step()
    while len(story.revisions) > 3:
        chance.choice([*each, *[story.goes_on] * len(each)])()
    while story.revisions:
        story.goes_on()
    assert archive.numbers[""] == count + 1
    assert story.told["brought forward"] > count // 3
    assert story.told["made anew"] < story.told["brought forward"]


@pytest.mark.parametrize("task", [of_words, of_publish])
def test_a_link_in_the_place_of_a_folder_brings_no_file_into_the_index(
    archive: AnArchive, managers: Managers, tmp_path: Path, task: Task
) -> None:
    """The folder's paths are deleted, and through the link they lead to other files."""
    repository = a_git_repository(tmp_path)
    repository.commit({"README": "papers"})
    repository.commit({"old/paper": "first thoughts", "new/paper": "second thoughts"})
    repository.git("rm", "-rq", "old")
    repository.commit({"old": Link("new")})
    story = Story(archive, revisions(archive, repository.url, "git", "main"), tmp_path, task)
    managers()
    story.goes_on()
    story.goes_on()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_index_follows_the_history_of_the_project(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    """The documents are its pages in `docs/`."""
    project = Path(__file__).parents[3]
    if not (project / ".git").exists():
        pytest.skip("the project lies here without its history")
    repository = a_subversion_repository(tmp_path)
    load_project(project, repository, 500)
    story = Story(
        archive,
        revisions(archive, f"{repository.url}/trunk", "subversion", ""),
        tmp_path,
        lambda folder, plan: of_publish(folder, plan, "docs"),
    )
    managers()
    story.is_anew = False
    while story.revisions:
        story.goes_on()
    assert story.told["brought forward"] == archive.numbers[""] - 1 > 300
