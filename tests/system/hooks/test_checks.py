"""The checking hooks refuse real commits and pushes with faulty workflow files, and
nothing else.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from arkqueue import hooks
from tests.repositories import (  # fmt: skip
    Content,
    GitRepository,
    Link,
    SubversionRepository,
    a_git_repository,
    a_subversion_repository,
)
from tests.system.conftest import Checker
from tests.system.hooks.conftest import TOKEN

GOOD = "- name: index\n- name: build\n  depends: [index]\n"
FAULTY = "- name: index\n- name: build\n  depends: [indexng]\n"
FAULT = "a.yaml:3:13: "
LARGE = "x" * 900_000
TOO_MUCH = (
    "more workflow files than are checked at once (1,000 files, 4 MiB); divide this into several commits or pushes"
)


@pytest.fixture
def subversion(tmp_path: Path, nobody: str, checker: Checker) -> SubversionRepository:
    repository = a_subversion_repository(tmp_path)
    hooks.install(repository.path, server=nobody, token=TOKEN, check=True, checker=checker.path)
    return repository


@pytest.fixture
def git(tmp_path: Path, nobody: str, checker: Checker) -> GitRepository:
    repository = a_git_repository(tmp_path)
    hooks.install(repository.path, server=nobody, token=TOKEN, check=True, checker=checker.path)
    return repository


def refused(repository: SubversionRepository, changes: Mapping[str, Content]) -> str:
    """What a committer is told, whose commit must not have come about."""
    head = repository.head
    with pytest.raises(AssertionError) as error:
        repository.commit(changes)
    assert repository.head == head
    return str(error.value)


def have_svnlook(subversion: SubversionRepository, folder: Path, answer: str) -> None:
    """Have svnlook answer otherwise where the hook asks what is in ``bad/_workflows``."""
    svnlook = folder / "programs" / "svnlook"
    svnlook.parent.mkdir()
    svnlook.write_text(
        f'#!/bin/sh\ncase "$*" in *tree*bad/_workflows*) {answer} ;; esac\nPATH=/usr/bin:/bin; exec svnlook "$@"\n'
    )
    svnlook.chmod(0o755)
    hook = subversion.path / "hooks" / "pre-commit"
    hook.write_text(hook.read_text().replace("PATH=", f"PATH={svnlook.parent}:", 1))


def push(git: GitRepository, *refs: str) -> tuple[bool, str]:
    done = subprocess.run(
        ["git", "-C", str(git.work), "push", "origin", *refs], capture_output=True, text=True, check=False
    )
    return done.returncode == 0, done.stderr


# Subversion


def test_faulty_commit_is_refused_with_its_faults(subversion: SubversionRepository) -> None:
    said = refused(subversion, {"_workflows/a.yaml": FAULTY})
    assert "arkqueue: refused, because there is a fault in the workflow files:" in said
    assert f"_workflows/{FAULT}" in said
    assert "'index'" in said
    assert "`arkqueue check`" in said
    subversion.commit({"_workflows/a.yaml": GOOD})
    subversion.commit({"_workflows/b.yaml": "- name: later\n  depends: [index]\n"})
    assert "b.yaml:2:13: " in refused(subversion, {"_workflows/a.yaml": None})
    subversion.delete("_workflows")


def test_repository_may_lie_under_a_name_of_any_letters(tmp_path: Path, nobody: str, checker: Checker) -> None:
    """Subversion gives its hooks no environment, and svnlook without one knows no letters but the plainest."""
    repository = a_subversion_repository(tmp_path, "größe")
    hooks.install(repository.path, server=nobody, token=TOKEN, check=True, checker=checker.path)
    assert f"_workflows/{FAULT}" in refused(repository, {"_workflows/a.yaml": FAULTY, "x": "1"})


def test_every_fault_is_told_at_its_folder(subversion: SubversionRepository) -> None:
    said = refused(
        subversion, {"trunk/_workflows/a.yaml": FAULTY, "päpers/new/_workflows/b.json": "{", "_workflows/ok.yml": GOOD}
    )
    assert f"trunk/_workflows/{FAULT}" in said
    assert "pers/new/_workflows/b.json:1:" in said
    assert "ok.yml" not in said.partition("arkqueue: refused")[2]


def test_checker_is_not_started_for_other_commits(subversion: SubversionRepository, checker: Checker) -> None:
    subversion.commit({"trunk/a": "1", "trunk/my_workflows/a.yaml": FAULTY, "trunk/_workflows.txt": FAULTY})
    assert checker.starts == 0
    subversion.commit({"trunk/_workflows/a.yaml": GOOD})
    assert checker.starts == 1
    subversion.commit({"trunk/a": "2"})
    assert checker.starts == 1


def test_what_is_no_workflow_file_is_not_looked_at(subversion: SubversionRepository) -> None:
    subversion.commit({"_workflows/note.txt": FAULTY, "_workflows/more/a.yaml": FAULTY})
    subversion.move("_workflows/more", "_workflows/some")
    assert "a.yaml" in refused(subversion, {"_workflows/a.yaml": "x" * (2**20 + 1)})


def test_links_and_what_is_no_folder_are_refused(subversion: SubversionRepository) -> None:
    subversion.commit({"a/real/a.yaml": GOOD, "b/_workflows/real": GOOD})
    link = "_workflows: this is a symbolic link, and links are not followed"
    assert f"a/{link}" in refused(subversion, {"a/_workflows": Link("real")})
    assert "b/_workflows/a.yaml: this is a symbolic link" in refused(subversion, {"b/_workflows/a.yaml": Link("real")})
    assert "a/_workflows: this is not a folder" in refused(subversion, {"a/_workflows": "text"})


def test_moved_folder_becomes_workflows_only_without_faults(subversion: SubversionRepository) -> None:
    subversion.commit({"drafts/a.yaml": FAULTY})
    with pytest.raises(AssertionError, match=FAULT):
        subversion.move("drafts", "_workflows")


@pytest.mark.parametrize("ailment", ["missing", "crashes", "hangs"])
def test_commit_passes_with_a_warning_when_the_checker_cannot_run(
    tmp_path: Path, nobody: str, checker: Checker, ailment: str
) -> None:
    subversion, git = a_subversion_repository(tmp_path), a_git_repository(tmp_path)
    for path in (subversion.path, git.path):
        hooks.install(path, server=nobody, token=TOKEN, check=True, checker=checker.path, check_timeout=1)
    program = Path(checker.path)
    if ailment == "missing":
        program.unlink()
    else:
        program.write_text("#!/bin/sh\n" + ("exit 1\n" if ailment == "crashes" else "sleep 1000 & wait\n"))
    (tmp_path / "a.yaml").write_text(FAULTY)
    command = ["svnmucc", "-U", subversion.url, "-m", "", "mkdir", "_workflows"]
    command += ["put", str(tmp_path / "a.yaml"), "_workflows/a.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert subversion.head == "1"
    assert "arkqueue: warning: the workflow files of revision 1 were not checked" in done.stdout + done.stderr
    done = subprocess.run(["svn", "mkdir", "-m", "", f"{subversion.url}/a"], capture_output=True, text=True, check=True)
    assert "arkqueue" not in done.stdout + done.stderr
    git.commit({"_workflows/a.yaml": FAULTY}, push=False)
    passed, said = push(git, "main")
    assert passed
    assert "remote: arkqueue: warning: the checker could not run" in said


def test_folder_that_looks_like_something_else_switches_nothing_off(subversion: SubversionRepository) -> None:
    """Like options, a revision, or two lines."""
    folders = ["-x", "--help", "a@1"]
    files = {f"{folder}/_workflows/-a.yaml": FAULTY for folder in folders}
    said = refused(subversion, {"_workflows/a.yaml": FAULTY, "a\u2028b/_workflows/two.yaml": FAULTY, **files})
    assert f"  _workflows/{FAULT}" in said
    for folder in folders:
        assert f"{folder}/_workflows/-{FAULT}" in said
    assert "b/_workflows/two.yaml:3:13: " in said


def test_folder_that_cannot_be_read_lets_nothing_pass(subversion: SubversionRepository, tmp_path: Path) -> None:
    """Where svnlook fails for one folder, the commit is refused, and the faults of the others are told."""
    have_svnlook(subversion, tmp_path, "exit 1")
    said = refused(subversion, {"bad/_workflows/a.yaml": GOOD, "c/_workflows/a.yaml": FAULTY})
    assert "bad/_workflows: this cannot be read" in said
    assert f"c/_workflows/{FAULT}" in said
    subversion.commit({"c/_workflows/a.yaml": GOOD})


def test_list_without_an_end_is_not_read_and_lets_nothing_pass(
    subversion: SubversionRepository, tmp_path: Path
) -> None:
    have_svnlook(subversion, tmp_path, "yes | head -c 100000000; exit")
    assert "this changes too much to be checked" in refused(subversion, {"bad/_workflows/a.yaml": GOOD})


def test_commit_with_more_than_is_checked_at_once_is_refused(subversion: SubversionRepository) -> None:
    """Or it would switch the check off, which a commit does not wait for longer than 20 seconds."""
    large = "[] #" + LARGE
    said = refused(
        subversion, {**{f"{name}/_workflows/a.yaml": large for name in "abcde"}, "_workflows/a.yaml": FAULTY}
    )
    assert f"_workflows/{FAULT}" in said
    assert TOO_MUCH in said


def test_many_faults_are_counted_as_far_as_they_are_looked_for(subversion: SubversionRepository) -> None:
    said = refused(subversion, {"_workflows/a.yaml": "- {nam: x}\n" * 1100})
    assert "there are more than 1,000 faults" in said


# Git


def test_faulty_push_is_refused_with_its_faults(git: GitRepository, checker: Checker) -> None:
    git.commit({"a": "1"})
    assert checker.starts == 0
    git.commit({"_workflows/a.yaml": FAULTY}, push=False)
    with git.served() as server:
        for url in (str(git.path), server.url):
            git.git("remote", "set-url", "origin", url)
            passed, said = push(git, "main")
            assert not passed
            assert f"remote:   _workflows/{FAULT}" in said
            assert "pre-receive hook declined" in said
    assert "quarantine" not in said
    git.git("remote", "set-url", "origin", str(git.path))
    git.commit({"_workflows/a.yaml": GOOD}, push=False)
    assert push(git, "main")[0], "the faulty commit between is mended by the head"


def test_push_of_links_and_of_what_is_no_folder_is_refused(git: GitRepository) -> None:
    for changes, said in (
        ({"_workflows": Link("real"), "real/a.yaml": GOOD}, "_workflows: this is a symbolic link"),
        ({"_workflows": "text"}, "_workflows: this is not a folder"),
        ({"_workflows": None}, ""),
        ({"_workflows/a.yaml": Link("../real/a.yaml")}, "_workflows/a.yaml: this is a symbolic link"),
    ):
        git.commit(changes, push=False)
        passed, told = push(git, "main")
        assert (passed, said in told) == (not said, True), told


def test_replacement_that_was_pushed_before_switches_nothing_off(git: GitRepository) -> None:
    """Git's programs would read the good commit for the faulty one, which arkqueue then runs."""
    good = git.commit({"_workflows/a.yaml": GOOD})
    bad = git.commit({"_workflows/a.yaml": FAULTY}, push=False)
    assert push(git, f"{good}:refs/replace/{bad}")[0]
    passed, said = push(git, "main")
    assert not passed
    assert f"_workflows/{FAULT}" in said


def test_push_with_more_than_is_checked_at_once_is_refused(git: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    git.commit({"a": "1"})
    branches = [f"b{n}" for n in range(5)]
    for branch in branches:
        git.switch(branch, "main")
        git.commit({"_workflows/a.yaml": f"[] # {branch}{LARGE}"}, push=False)
    passed, said = push(git, *branches)
    assert not passed
    assert TOO_MUCH in said
    assert push(git, *branches[:3])[0]
    monkeypatch.setattr("arkqueue.hooks.checks.MOST_WORKFLOW_FILES", 2)
    lines = [f"{'0' * 40} {git.id(branch)} refs/heads/{branch}" for branch in branches[:3]]
    assert hooks.check_push(git.path, lines[:2]) == []
    assert len(hooks.check_push(git.path, lines)) == 1


def test_values_of_all_branches_of_a_push_are_counted_together(
    git: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value takes time: with many dense branches, a push would else be taken unchecked when the check's time is up."""
    git.commit({"a": "1"})
    for branch in ("one", "two"):
        git.switch(branch, "main")
        git.commit({"_workflows/a.yaml": f"- name: a\n  command: [{','.join([branch] * 60)}]\n"}, push=False)
    assert push(git, "one", "two")[0]
    monkeypatch.setattr("arkqueue.hooks.checks.MOST_VALUES", 100)
    lines = [f"{'0' * 40} {git.id(branch)} refs/heads/{branch}" for branch in ("one", "two")]
    assert hooks.check_push(git.path, lines[:1]) == []
    (fault,) = hooks.check_push(git.path, lines)
    assert "more values in workflow files than are checked at once (100); write fewer" in fault.message


def test_equal_workflow_files_of_many_branches_are_judged_once(git: GitRepository) -> None:
    git.commit({"a": "1"})
    branches = []
    for n in range(12):
        git.switch(f"b{n}", "main")
        git.commit({"_workflows/a.yaml": "[] #" + LARGE, "b": str(n)}, push=False)
        branches.append(f"b{n}")
    assert push(git, *branches)[0]


def test_checker_is_not_started_for_other_pushes(git: GitRepository, checker: Checker) -> None:
    git.commit({"_workflows/a.yaml": GOOD})
    assert checker.starts == 1
    git.commit({"src/_workflows/a.yaml": FAULTY, "b": "1"})
    git.switch("topic")
    git.commit({"b": "2"})
    git.delete_branch("topic")
    git.commit({"_workflows/a.yaml": FAULTY}, push=False)
    git.git("tag", "faulty")
    assert push(git, "faulty")[0]
    assert checker.starts == 1


def test_faults_of_several_branches_are_told_apart(git: GitRepository) -> None:
    git.commit({"a": "1"})
    git.switch("bad")
    git.commit({"_workflows/a.yaml": FAULTY}, push=False)
    git.switch("good", "main")
    git.commit({"_workflows/a.yaml": GOOD}, push=False)
    passed, said = push(git, "bad", "good")
    assert not passed
    assert f"bad:_workflows/{FAULT}" in said
    assert "good:" not in said
    assert push(git, "good")[0]


def test_branch_without_workflows_can_be_pushed(git: GitRepository) -> None:
    git.commit({"_workflows/a.yaml": GOOD})
    git.delete("_workflows")
    git.switch("topic")
    git.commit({"b": "2"})


def test_new_branch_is_checked_where_head_names_none(git: GitRepository) -> None:
    main = git.commit({"a": "1"})
    git.switch("bad")
    git.commit({"_workflows/a.yaml": FAULTY}, push=False)
    for head in (main, "ref: refs/heads/none"):
        (git.path / "HEAD").write_text(head + "\n")
        passed, said = push(git, "bad")
        assert not passed
        assert f"_workflows/{FAULT}" in said


def test_old_faults_do_not_refuse_a_push_that_leaves_them(tmp_path: Path, nobody: str, checker: Checker) -> None:
    git = a_git_repository(tmp_path)
    git.commit({"_workflows/a.yaml": FAULTY})
    hooks.install(git.path, server=nobody, token=TOKEN, check=True, checker=checker.path)
    git.commit({"a": "1"})
    git.switch("topic")
    git.commit({"a": "2"})
    git.switch("mended", "main")
    git.commit({"_workflows/a.yaml": GOOD}, push=False)
    git.switch("also", "main")
    assert push(git, "mended", "also")[0], "only what changed is looked at"


def test_branch_name_that_looks_like_two_lines_switches_nothing_off(git: GitRepository) -> None:
    """What Python takes for the end of a line stands in names of branches, too."""
    git.commit({"a": "1"})
    names = ["a\u2028b", "a\u0085b", "a\u2029b"]
    for number, name in enumerate(names):  # other files each time: equal ones are judged once
        git.switch(name, "main")
        git.commit({"_workflows/a.yaml": f"{FAULTY}# {number}"}, push=False)
    git.switch("other", "main")
    git.commit({"a": "2"}, push=False)
    passed, said = push(git, *names, "other")
    assert not passed
    assert said.count(f"_workflows/{FAULT}") == len(names)
    assert "Traceback" not in said
    told = [line for line in said.split("\n") if line.startswith("remote:")]
    assert told
    assert not any(name in line for line in told for name in names), "they are made visible"


def test_line_of_a_push_that_cannot_be_read_lets_nothing_pass(git: GitRepository) -> None:
    git.commit({"a": "1"})
    (fault,) = hooks.check_push(git.path, ["nonsense"])
    assert "cannot be read" in str(fault)
