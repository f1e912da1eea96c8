"""`make` in a folder that stays rebuilds what a revision changed and nothing else, whatever the
clocks of committers say (rule 38).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.builders import AnArchive
from tests.repositories import GitRepository, SubversionRepository, a_git_repository
from tests.system.task_manager.conftest import Bells, Managers, log_of, settled
from tests.system.task_manager.test_checkouts import commit, run, watch

MAKEFILE = """\
all: $(patsubst src/%.txt,$(OUT)/%.out,$(wildcard src/*.txt))
$(OUT)/%.out: src/%.txt
\t@echo "built $*"
\t@text="$$(cat $<)"; case "$$text" in wait*) echo > $(OUT)/../begun; read x < $(OUT)/../go;; esac; echo "$$text" > $@
"""
FILES = [f"chapter-{number}" for number in range(12)]


def check_builds(
    archive: AnArchive,
    managers: Managers,
    repository: SubversionRepository | GitRepository,
    bells: Callable[[str], Bells],
    place: Path,
    revisions: Sequence[dict[str, str]],
    *,
    second_host: int,
) -> None:
    """That each revision is built from what it changes. A text that begins with "wait" is not built before the next revision is committed."""
    out = place / "out"
    out.mkdir()
    begun, go = bells("begun"), bells("go")
    manager = managers()
    watch(archive, repository)
    make = {"build": "depends: [PREV]\n" + run(f"make -s OUT={out}")}
    now: dict[str, str] = {}
    waits = False
    for number, changed in enumerate(revisions, start=2):
        files = {f"src/{name}.txt": text + "\n" for name, text in changed.items()}
        other = {"note": str(number)} if now else {"Makefile": MAKEFILE}
        commit(archive, repository, files | other, make)
        if waits:
            go.ring()
            settled(archive, f"build@{number - 1}", "completed")
        if number == second_host:
            manager.stop()
            managers(home=place / "second")
        now |= changed
        waits = any(text.startswith("wait") for text in changed.values())
        if waits:
            begun.hear()
            continue
        settled(archive, f"build@{number}", "completed")
        assert sorted(log_of(archive, f"build@{number}").split("\n")[:-1]) == sorted(
            f"built {name}" for name in changed
        )
        assert {path.stem: path.read_text() for path in out.iterdir()} == {
            name: f"{text}\n" for name, text in now.items()
        }


def test_make_builds_what_changed_also_while_the_build_before_ran_and_on_another_host(
    archive: AnArchive,
    managers: Managers,
    repository: SubversionRepository | GitRepository,
    bells: Callable[[str], Bells],
    tmp_path: Path,
) -> None:
    first = dict.fromkeys(FILES, "1")
    revisions = [
        first,
        {FILES[0]: "2"},
        {FILES[1]: "wait", FILES[2]: "3"},
        {FILES[2]: "4", FILES[1]: "4"},
        {FILES[5]: "5"},
        {},
    ]
    check_builds(archive, managers, repository, bells, tmp_path, revisions, second_host=6)


@pytest.mark.full
def test_make_builds_what_changed_over_twenty_revisions(
    archive: AnArchive,
    managers: Managers,
    repository: SubversionRepository | GitRepository,
    bells: Callable[[str], Bells],
    tmp_path: Path,
) -> None:
    chosen = random.Random(38)
    revisions = [dict.fromkeys(FILES, "1")]
    for number in range(2, 21):
        revisions.append({name: str(number) for name in chosen.sample(FILES, chosen.randint(0, 3))})
    revisions[6] = {FILES[1]: "wait", FILES[2]: "7"}
    revisions[7] = {FILES[2]: "8", FILES[3]: "8"}
    check_builds(archive, managers, repository, bells, tmp_path, revisions, second_host=10)


def test_a_commit_dated_in_the_future_is_built_once_and_by_no_second_host_again(
    archive: AnArchive, managers: Managers, tmp_path: Path
) -> None:
    repository, out = a_git_repository(tmp_path), tmp_path / "out"
    out.mkdir()
    watch(archive, repository)
    manager = managers()
    commit_at, today, day = repository.commit, int(time.time()), 86400

    def built(number: int, moment: int, files: dict[str, str]) -> str:
        repository.commit = lambda changes: commit_at(changes, at=moment)  # type: ignore[method-assign,misc,assignment]
        commit(archive, repository, files, {"build": "depends: [PREV]\n" + run(f"make -s OUT={out}")})
        settled(archive, f"build@{number}", "completed")
        return log_of(archive, f"build@{number}")

    first = {"Makefile": MAKEFILE} | {f"src/{name}.txt": "1\n" for name in "abc"}
    assert built(2, today - day, first) == "built a\nbuilt b\nbuilt c\n"
    assert built(3, today + 9 * day, {"src/b.txt": "2\n"}) == "built b\n"
    assert built(4, today + 9 * day, {"note": "1"}) == ""
    manager.stop()
    manager = managers(home=tmp_path / "second")
    assert built(5, today, {"src/a.txt": "2\n"}) == "built a\n"
    assert built(6, today + 8 * day, {"src/c.txt": "2\n"}) == "built c\n"
    manager.stop()
    managers(home=tmp_path / "third")
    assert built(7, today, {"note": "2"}) == ""


def test_a_commit_dated_before_the_last_build_is_built(archive: AnArchive, managers: Managers, tmp_path: Path) -> None:
    repository, out = a_git_repository(tmp_path), tmp_path / "out"
    out.mkdir()
    watch(archive, repository)
    managers()
    make = {"build": run(f"make -s OUT={out}; stat -c %Y src/b.txt")}
    day = 86400
    commit_at = repository.commit

    def at(moment: int, files: dict[str, str]) -> None:
        repository.commit = lambda changes: commit_at(changes, at=moment)  # type: ignore[method-assign,misc,assignment]
        commit(archive, repository, files, make)

    today = int(time.time())
    at(today - day, {"Makefile": MAKEFILE, "src/a.txt": "1\n", "src/b.txt": "1\n"})
    settled(archive, "build@2", "completed")
    at(today - 3 * day, {"src/a.txt": "2\n"})
    settled(archive, "build@3", "completed")
    at(today + 9 * day, {"src/b.txt": "2\n", "src/c.txt": "2\n"})
    settled(archive, "build@4", "completed")
    at(today - 9 * day, {"src/a.txt": "3\n"})
    settled(archive, "build@5", "completed")
    assert log_of(archive, "build@3") == f"built a\n{today - day}\n"
    assert log_of(archive, "build@4").startswith("built b\nbuilt c\n")
    assert log_of(archive, "build@5").startswith("built a\n")
    assert int(log_of(archive, "build@5").split()[-1]) < today + day, "a date to come is none for make"
