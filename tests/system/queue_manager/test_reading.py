"""The hook is a hint, the repository is the truth: ledgers are filled from real repositories
(design 2, 5.16).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.archives import registration
from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.errors import NotFound
from arkqueue.queue import archives, ending
from arkqueue.queue_manager import QueueManager
from tests.repositories import a_git_repository, a_subversion_repository, run
from tests.system.queue_manager.conftest import WORKFLOW, Watched

Watch = Callable[..., Watched]
pytestmark = pytest.mark.usefixtures("manager")


def test_revisions_are_planned_in_order_however_notices_come(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"readme": "1"})
    papers = watch(repository.path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.commit({"readme": "3"})
    papers.notify("3")
    papers.notify("2")
    papers.notify("2")
    assert papers.wait_for_ledger(3) == [(1, "1"), (2, "2"), (3, "3")]
    assert papers.tasks() == {"index@2": "ready", "index@3": "waiting"}


def test_a_sweep_finds_commits_without_any_notice(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    repository.commit({"readme": "1"})
    papers.sql("update archive set next_read_at = now() returning id")
    assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]


def test_the_ledger_starts_after_the_revision_that_from_names(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    for n in range(3):
        repository.commit({"readme": str(n)})
    papers = watch(repository.path, start="2")
    assert papers.wait_for_ledger(3) == [(2, "2"), (3, "3"), (4, "4")]
    assert papers.tasks() == {"index@3": "ready", "index@4": "waiting"}


def test_a_watched_folder_has_only_the_revisions_that_touch_it(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"trunk/a": "1", "other/b": "1"})
    papers = watch(f"{repository.url}/trunk")
    repository.commit({"other/b": "2"})
    repository.commit({"trunk/a": "3"})
    repository.empty()
    repository.move("trunk/a", "trunk/c")
    papers.notify()
    assert papers.wait_for_ledger(3) == [(1, "1"), (3, "3"), (5, "5")]
    (previous,) = papers.sql("select previous from revision where number = 5")
    assert previous == {"previous": "3"}


def test_empty_revisions_count_at_the_root(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    repository.empty()
    papers.notify()
    assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]


def test_definitions_are_those_of_each_revision(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.commit({"_workflows/w.yaml": "- {name: index, comand: x}\n"})
    repository.commit({"_workflows/w.yaml": WORKFLOW.replace("index,", "other,")})
    papers.notify()
    papers.wait_for_ledger(4)
    assert papers.tasks() == {"index@1": "ready", "other@3": "ready"}
    (run,) = papers.sql("select faults from run where number = 2")
    assert "comand" in run["faults"][0]["message"]
    assert run["faults"][0]["line"] == 1


def test_a_moved_folder_counts_as_changed_paths(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"drafts/a.tex": "x", "_workflows/w.yaml": "- {name: pdf, command: x, paths: ['papers/**']}\n"})
    papers = watch(repository.path)
    repository.move("drafts", "papers")
    repository.commit({"readme": "x"})
    papers.notify()
    papers.wait_for_ledger(3)
    assert papers.tasks() == {"pdf@2": "ready"}


def test_another_repository_in_the_same_place_stops_the_archive(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    repository.commit({"readme": "1"})
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    shutil.rmtree(repository.path)
    other = a_subversion_repository(tmp_path)
    other.commit({"readme": "1"})
    other.commit({"readme": "2"})
    papers.notify()
    papers.wait_for(lambda: papers.row()["stopped"])
    assert "UUID" in papers.row()["stopped"]
    assert "arkqueue archive rewind papers" in papers.row()["stopped"]
    assert papers.ledger() == [(1, "1")]


def restored(tmp_path: Path, watch: Watch) -> tuple[Watched, Path]:
    """An archive whose repository went back from revision 3 to a backup of revision 2."""
    repository = a_subversion_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    repository.commit({"readme": "2"})
    backup = tmp_path / "backup"
    shutil.copytree(repository.path, backup)
    repository.commit({"readme": "3"})
    papers.notify()
    papers.wait_for_ledger(3)
    shutil.rmtree(repository.path)
    backup.rename(repository.path)
    papers.notify()
    papers.wait_for(lambda: papers.row()["stopped"])
    return papers, repository.path


def test_rewind_takes_a_restored_repository_up_again(
    watch: Watch, tmp_path: Path, session: Session, configuration: Configuration
) -> None:
    papers, path = restored(tmp_path, watch)
    assert papers.ledger() == [(1, "1"), (2, "2"), (3, "3")], "the histories are not mixed"
    registration.rewind(session, configuration, papers.id, "2", "ann")
    again = a_subversion_repository_at(path)
    again.commit({"readme": "another 3"})
    papers.notify()
    assert papers.wait_for_ledger(2) == [(2, "2"), (3, "3")]
    assert papers.tasks() == {"index@3": "ready"}
    assert papers.tasks("rewound~1") == {"index@2": "canceled", "index@3": "canceled"}


def a_subversion_repository_at(path: Path):  # type: ignore[no-untyped-def]
    from tests.repositories import SubversionRepository

    return SubversionRepository(path)


def test_a_revision_that_does_not_exist_yet_is_looked_for_again_and_shown(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    papers.notify("1")
    papers.wait_for(lambda: papers.sql("select from look where looked = asked and revision = '1'") or looked(papers))
    repository.commit({"readme": "1"})
    assert papers.wait_for_ledger(2) == [(0, "0"), (1, "1")]
    papers.wait_for(lambda: not papers.sql("select archive_id from look"))


def test_a_late_notice_makes_no_expected_revision_forgotten(watch: Watch, tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    for expected, late in (("2", "1"), ("3", "0")):
        papers.notify(expected)
        papers.wait_for(lambda: papers.sql("select from look where looked = asked"))
        papers.notify(late)
        papers.wait_for(lambda: papers.sql("select from look where looked = asked"))
        assert papers.sql("select revision from look") == [{"revision": expected}]
    for number in range(3):
        repository.commit({"readme": str(number)})
    papers.wait_for_ledger(4)
    papers.wait_for(lambda: not papers.sql("select archive_id from look"))


def looked(papers: Watched) -> bool:
    return bool(papers.sql("select archive_id from look where looked = asked and revision = '1'"))


# Git


def test_a_push_of_many_commits_is_planned_commit_by_commit(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    ids = [repository.commit({"readme": str(n)}, push=False) for n in range(3)]
    repository.push("main")
    papers.notify(ids[-1])
    assert papers.wait_for_ledger(4, "main") == [(1, first), (2, ids[0]), (3, ids[1]), (4, ids[2])]
    assert papers.tasks("main") == {"index@2": "ready", "index@3": "waiting", "index@4": "waiting"}


def test_a_push_to_an_untracked_branch_names_no_missing_revision(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    repository.git("checkout", "-q", "-b", "topic")
    other = repository.commit({"readme": "1"}, push=False)
    repository.push("topic")
    papers.wait_for(lambda: papers.row()["read_at"])
    papers.notify(other)
    papers.wait_for(lambda: looked_or_gone(papers))
    assert not papers.sql("select archive_id from look")
    assert papers.ledger("main") == [(1, first)]
    papers.notify("0" * 39 + "1")
    papers.wait_for(lambda: looked_or_gone(papers))
    assert papers.sql("select archive_id from look where looked = asked"), "that one is missing indeed"


def looked_or_gone(papers: Watched) -> bool:
    """Whether a look has answered the notice: it is forgotten, or what it named is expected."""
    return not papers.sql("select archive_id from look where looked < asked")


def test_a_first_push_into_an_empty_repository_plans_all_of_it(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    papers = watch(repository.path)
    ids = [repository.commit({"_workflows/w.yaml": WORKFLOW, "readme": str(n)}, push=False) for n in range(2)]
    repository.push("main")
    papers.notify()
    assert papers.wait_for_ledger(2, "main") == [(1, ids[0]), (2, ids[1])]
    assert papers.tasks("main") == {"index@1": "ready", "index@2": "waiting"}


def test_a_force_push_cancels_what_it_dropped_and_goes_on_in_number(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    dropped = repository.commit({"readme": "bad"})
    papers.notify()
    papers.wait_for_ledger(2, "main")
    repository.reset(first)
    kept = repository.commit({"readme": "good"}, push=False)
    repository.push("main", force=True)
    papers.notify()
    assert papers.wait_for_ledger(3, "main") == [(1, first), (2, dropped), (3, kept)]
    assert papers.tasks("main") == {"index@2": "canceled", "index@3": "ready"}


def test_a_reset_to_an_ancestor_appends_it_again(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    second = repository.commit({"readme": "2"})
    papers.notify()
    papers.wait_for_ledger(2, "main")
    repository.reset(first)
    repository.push("main", force=True)
    papers.notify()
    assert papers.wait_for_ledger(3, "main") == [(1, first), (2, second), (3, first)]
    assert papers.tasks("main") == {"index@2": "canceled", "index@3": "ready"}


def test_a_new_branch_starts_at_its_merge_base(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("main", "release/*"))
    papers.wait_for_ledger(1, "main")
    repository.switch("release/1", "main")
    own = repository.commit({"readme": "release"})
    repository.switch("release/2", "main")
    repository.push("release/2")
    repository.switch("other", "main")
    repository.commit({"readme": "untracked"})
    papers.notify()
    assert papers.wait_for_ledger(2, "release/1") == [(1, first), (2, own)]
    assert papers.wait_for_ledger(1, "release/2") == [(1, first)]
    assert papers.tasks("release/1") == {"index@2": "ready"}
    assert papers.tasks("release/2") == {"index@1": "ready"}
    assert papers.ledger("other") == []


def test_a_new_branch_whose_first_look_was_killed_starts_at_its_merge_base(
    watch: Watch, session: Session, tmp_path: Path
) -> None:
    """It is tracked in one transaction and has its first revisions in the next."""
    repository = a_git_repository(tmp_path)
    for n in range(3):
        head = repository.commit({"_workflows/w.yaml": WORKFLOW, "readme": str(n)})
    papers = watch(repository.path, branches=("*",))
    papers.wait_for(lambda: papers.row()["read_at"] and not papers.sql("select archive_id from look"))
    archives.track(session, papers.id, "draft")
    repository.switch("draft", "main")
    own = repository.commit({"readme": "own"})
    papers.notify()
    assert papers.wait_for_ledger(2, "draft") == [(3, head), (4, own)]


def test_two_new_branches_in_one_push_do_not_hide_each_others_commits(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("*",))
    papers.wait_for_ledger(1, "main")
    repository.switch("a", "main")
    common = repository.commit({"readme": "common"}, push=False)
    repository.switch("b", "a")
    repository.push("a", "b")
    papers.notify()
    assert [id for _, id in papers.wait_for_ledger(2, "a")][1:] == [common]
    assert papers.wait_for_ledger(1, "b")[-1] == (2, common)


def test_the_ledger_of_a_git_archive_starts_after_the_commit_that_from_names(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    ids = [repository.commit({"_workflows/w.yaml": WORKFLOW, "readme": str(n)}) for n in range(4)]
    papers = watch(repository.path, start=ids[1][:10])
    assert papers.wait_for_ledger(3, "main") == [(2, ids[1]), (3, ids[2]), (4, ids[3])]
    assert papers.tasks("main") == {"index@3": "ready", "index@4": "waiting"}


def test_a_restored_backup_of_a_git_repository_stops_the_archive_until_it_is_rewound(
    watch: Watch, tmp_path: Path, session: Session, configuration: Configuration
) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    shutil.copytree(repository.path, tmp_path / "backup")
    lost = repository.commit({"readme": "lost"})
    papers.notify()
    papers.wait_for_ledger(2, "main")
    shutil.rmtree(repository.path)
    (tmp_path / "backup").rename(repository.path)
    papers.notify()
    papers.wait_for(lambda: papers.row()["stopped"])
    assert f"no longer holds the last known commit {lost[:12]} (revision 2)" in papers.row()["stopped"]
    assert "arkqueue archive rewind papers REV" in papers.row()["stopped"]

    repository.reset(first)
    other = repository.commit({"readme": "another"})
    assert papers.ledger("main") == [(1, first), (2, lost)], "the histories are not mixed"
    registration.rewind(session, configuration, papers.id, first, "ann")
    papers.notify()
    assert papers.wait_for_ledger(2, "main") == [(1, first), (2, other)]
    assert papers.tasks("main") == {"index@2": "ready"}
    assert papers.ledger("rewound~1") == [(1, first), (2, lost)]
    assert papers.tasks("rewound~1") == {"index@2": "canceled"}


def test_rewind_takes_a_number_for_the_ledgers(
    watch: Watch, tmp_path: Path, session: Session, configuration: Configuration
) -> None:
    """After a force-push the ledger's numbers, which people see, are not those that first parents are counted by."""
    repository = a_git_repository(tmp_path)
    kept = [repository.commit({"readme": n}) for n in "12"]
    papers = watch(repository.path)
    dropped = repository.commit({"readme": "3"})
    papers.notify()
    papers.wait_for_ledger(2, "main")
    repository.reset(kept[1])
    new = [repository.commit({"readme": n}, push=False) for n in "45"]
    repository.push("main", force=True)
    papers.notify()
    assert papers.wait_for_ledger(4, "main") == [(2, kept[1]), (3, dropped), (4, new[0]), (5, new[1])]

    def rewind(to: str) -> str:
        return registration.rewind(session, configuration, papers.id, to, "ann").note

    with pytest.raises(NotFound, match=f"papers@3: is commit {dropped}, which is not on the branch any more"):
        rewind("3")
    assert f"4 was commit {new[0]}; counted along first parents, it is 3 from now on" in rewind("4")
    assert papers.wait_for_ledger(2, "main") == [(3, new[0]), (4, new[1])]
    assert f"had no revision 1; counted along first parents, that is commit {kept[0]}" in rewind("1")
    assert papers.wait_for_ledger(4, "main") == [(1, kept[0]), (2, kept[1]), (3, new[0]), (4, new[1])]


def test_a_queue_manager_takes_the_steps_of_the_end_of_a_large_branch(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "MOST_TASKS", 2)
    repository = a_git_repository(tmp_path)
    tasks = [f"- {{name: t{n}, command: index, depends: [PREV]}}\n" for n in range(5)]
    repository.commit({"_workflows/w.yaml": "".join(tasks)})
    papers = watch(repository.path, branches=("*",))
    repository.switch("draft", "main")
    repository.commit({"readme": "x"})
    repository.commit({"readme": "y"})
    papers.notify()
    papers.wait_for_ledger(3, "draft")
    repository.switch("main")
    repository.delete_branch("draft")
    papers.notify()
    papers.wait_for(lambda: set(papers.tasks("draft").values()) == {"canceled"})
    papers.wait_for(lambda: papers.sql("select count(*) as n from ending") == [{"n": 0}])
    held = "select d.note from deed d where d.verb = 'cancel' and d.archive_id = %s"
    assert papers.sql(held, papers.id) == [{"note": "in steps; tasks that it has not reached are held"}]


@pytest.mark.parametrize("gone", [False, True], ids=["kept", "collected as garbage"])
def test_a_branch_that_comes_back_is_new_and_goes_on_in_number(watch: Watch, tmp_path: Path, gone: bool) -> None:
    """It has neither what happened on the main branch meanwhile, nor need its old commits be there."""
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("*",))
    repository.switch("draft", "main")
    old = repository.commit({"readme": "x"})
    papers.notify()
    papers.wait_for_ledger(2, "draft")
    repository.switch("main")
    if not gone:
        repository.merge("draft")
    repository.delete_branch("draft")
    papers.notify()
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'draft' and deleted_at is not null"))
    repository.git("branch", "-q", "-D", "draft")
    run("git", "gc", "-q", "--prune=now", cwd=repository.path)
    repository.commit({"readme": "of main"})
    repository.switch("draft", "main")
    own = [repository.commit({"own": str(n)}, push=False) for n in range(2)]
    repository.push("draft")
    papers.notify()
    assert papers.wait_for_ledger(3, "draft") == [(1, first), (2, old), (3, own[0]), (4, own[1])]
    assert papers.tasks("draft") == {"index@2": "canceled", "index@3": "ready", "index@4": "waiting"}
    assert papers.row()["stopped"] is None


def test_several_queue_managers_plan_each_revision_once(
    watch: Watch, tmp_path: Path, session: Session, configuration: Configuration
) -> None:
    repository = a_subversion_repository(tmp_path)
    papers = watch(repository.path)
    others = [QueueManager(session, configuration) for _ in range(2)]
    for other in others:
        other.start()
    for n in range(6):
        repository.commit({"_workflows/w.yaml": WORKFLOW + f"# {n}\n"})
        papers.notify()
    papers.wait_for_ledger(7)
    for other in others:
        other.close()
    (runs,) = papers.sql("select count(*) as n, count(distinct revision_id) as distinct from run")
    assert runs == {"n": 7, "distinct": 7}


def test_the_main_branch_is_the_one_that_the_repositorys_head_names(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": "- {name: nightly, command: x, schedule: '0 3 * * *'}\n"})
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    repository.switch("trunk", "main")
    repository.push("trunk")
    run("git", "symbolic-ref", "HEAD", "refs/heads/trunk", cwd=repository.path)
    papers.notify()
    papers.wait_for_ledger(1, "trunk")
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'trunk' and main"))
    assert papers.sql("select name from branch where main") == [{"name": "trunk"}]
    papers.wait_for(
        lambda: papers.sql("select s.id from schedule s join branch b on b.id = s.branch_id where b.name = 'trunk'")
    )


def test_a_new_default_branch_runs_its_head_and_none_of_the_history(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    for n in range(5):
        head = repository.commit({"_workflows/w.yaml": WORKFLOW, "readme": str(n)})
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    repository.switch("trunk", "main")
    repository.push("trunk")
    run("git", "symbolic-ref", "HEAD", "refs/heads/trunk", cwd=repository.path)
    repository.switch("main")
    repository.delete_branch("main")
    papers.notify()
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'main' and deleted_at is not null"))
    assert papers.ledger("trunk") == [(5, head)]
    assert papers.tasks("trunk") == {"index@5": "ready"}
    repository.switch("trunk")
    new = repository.commit({"readme": "new"})
    papers.notify()
    assert papers.wait_for_ledger(2, "trunk") == [(5, head), (6, new)]


def test_a_head_that_names_no_branch_takes_the_one_that_is_there_for_no_deleted_one(
    watch: Watch, tmp_path: Path
) -> None:
    main = "main$(id>pwned)"
    repository = a_git_repository(tmp_path, main=main)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    run("git", "symbolic-ref", "HEAD", "refs/heads/nope", cwd=repository.path)
    papers.notify()
    papers.wait_for(lambda: papers.row()["trouble"])
    trouble = papers.row()["trouble"]
    assert f"HEAD names the branch nope, which does not exist, while {main} does" in trouble
    assert papers.sql("select name, deleted_at from branch") == [{"name": main, "deleted_at": None}]
    second = repository.commit({"readme": "2"})
    run("sh", "-c", trouble[trouble.index("git symbolic-ref") :], cwd=repository.path)
    assert not (repository.path / "pwned").exists()
    papers.notify()
    assert papers.wait_for_ledger(2, main) == [(1, first), (2, second)]


def test_what_somebody_checks_out_in_a_plain_repository_is_not_its_main_branch(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.work)
    papers.wait_for(lambda: papers.row()["read_at"])
    repository.switch("side", "main")
    repository.commit({"readme": "of the side"}, push=False)
    papers.notify()
    papers.wait_for(lambda: looked_or_gone(papers))
    repository.git("checkout", "-q", "--detach")
    papers.notify()
    papers.wait_for(lambda: looked_or_gone(papers))
    repository.git("checkout", "-q", "main")
    second = repository.commit({"readme": "of main"}, push=False)
    papers.notify()
    assert papers.wait_for_ledger(2, "main") == [(1, first), (2, second)]
    assert papers.sql("select name, main, deleted_at from branch") == [
        {"name": "main", "main": True, "deleted_at": None}
    ]
    assert papers.row()["trouble"] is None


def test_a_tracked_branch_becomes_the_main_one_when_the_main_one_is_deleted(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.switch("trunk", "main")
    repository.push("trunk")
    papers = watch(repository.path, branches=("*",))
    assert papers.sql("select name from branch where main") == [{"name": "main"}]
    run("git", "symbolic-ref", "HEAD", "refs/heads/trunk", cwd=repository.path)
    repository.delete_branch("main")
    papers.notify()
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'main' and deleted_at is not null"))
    assert papers.sql("select name from branch where main") == [{"name": "trunk"}]


def test_a_deleted_branch_that_comes_back_unchanged_runs_nothing_again(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path, branches=("*",))
    repository.switch("draft", "main")
    repository.commit({"readme": "1"})
    papers.notify()
    papers.wait_for_ledger(2, "draft")
    repository.switch("main")
    repository.delete_branch("draft")
    papers.notify()
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'draft' and deleted_at is not null"))
    repository.push("draft")
    papers.notify()
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'draft' and deleted_at is null"))
    papers.wait_for(lambda: looked_or_gone(papers))
    assert papers.tasks("draft") == {"index@2": "canceled"}


@pytest.mark.parametrize("there", ["local", "remote"])
def test_commits_on_a_renamed_default_branch_are_all_planned(watch: Watch, tmp_path: Path, there: str) -> None:
    repository = a_git_repository(tmp_path)
    for n in range(3):
        repository.commit({"_workflows/w.yaml": WORKFLOW, "readme": str(n)})
    with repository.served() as server:
        papers = watch(repository.path if there == "local" else server.url)
        repository.switch("trunk", "main")
        ids = [repository.commit({"readme": f"of trunk {n}"}, push=False) for n in range(2)]
        repository.push("trunk")
        run("git", "symbolic-ref", "HEAD", "refs/heads/trunk", cwd=repository.path)
        repository.delete_branch("main")
        papers.notify()
        papers.wait_for(lambda: papers.tasks("trunk") == {"index@4": "ready", "index@5": "waiting"})
        assert papers.ledger("trunk")[1:] == [(4, ids[0]), (5, ids[1])]


@pytest.mark.parametrize("killed", [False, True], ids=["", "after a look that was killed"])
def test_an_older_branch_that_becomes_the_default_runs_its_head_alone(
    watch: Watch, session: Session, tmp_path: Path, killed: bool
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.git("checkout", "-q", "--orphan", "pages")
    for n in range(3):
        head = repository.commit({"_workflows/w.yaml": WORKFLOW, "page": str(n)}, push=False)
    repository.push("pages")
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"] and not papers.sql("select archive_id from look"))
    run("git", "symbolic-ref", "HEAD", "refs/heads/pages", cwd=repository.path)
    if killed:
        archives.track(session, papers.id, "pages", main=True)
    papers.notify()
    papers.wait_for(lambda: papers.sql("select id from branch where name = 'pages' and main"))
    assert papers.wait_for_ledger(1, "pages") == [(3, head)]
    papers.wait_for(lambda: papers.tasks("pages") == {"index@3": "ready"})


def test_a_mirror_that_was_removed_is_fetched_again_before_anything_is_concluded(
    watch: Watch, configuration: Configuration, tmp_path: Path
) -> None:
    """A new one's HEAD is whatever `git init` says, until its remote was asked."""
    repository = a_git_repository(tmp_path, main="trunk")
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.switch("master", "trunk")
    repository.commit({"readme": "of an old branch"})
    repository.switch("trunk")
    with repository.served() as server:
        papers = watch(server.url)
        papers.wait_for(lambda: papers.row()["read_at"] and not papers.sql("select archive_id from look"))
        shutil.rmtree(configuration.home / "mirrors")
        second = repository.commit({"readme": "2"})
        papers.notify()
        assert papers.wait_for_ledger(2, "trunk") == [(1, first), (2, second)]
        assert papers.sql("select name, main, deleted_at from branch") == [
            {"name": "trunk", "main": True, "deleted_at": None}
        ]


def test_another_repository_with_another_default_branch_stops_the_archive(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first = repository.commit({"_workflows/w.yaml": WORKFLOW})
    papers = watch(repository.path)
    papers.wait_for(lambda: papers.row()["read_at"])
    other = a_git_repository(tmp_path, "other", main="trunk")
    other.commit({"_workflows/w.yaml": WORKFLOW, "readme": "another one"})
    shutil.rmtree(repository.path)
    other.path.rename(repository.path)
    papers.notify()
    papers.wait_for(lambda: papers.row()["stopped"])
    assert papers.sql("select name from branch") == [{"name": "main"}]
    assert papers.ledger("main") == [(1, first)]


def test_branches_that_are_tracked_later_begin_at_their_heads(
    watch: Watch, session: Session, configuration: Configuration, tmp_path: Path
) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": WORKFLOW})
    repository.switch("feature", "main")
    heads = [repository.commit({"readme": str(n)}) for n in range(3)]
    papers = watch(repository.path)
    registration.change_settings(session, configuration, papers.id, ArchiveSettings(branches=("*",)), "ann")
    assert papers.ledger("feature") == [(4, heads[-1])]
    new = repository.commit({"readme": "new"})
    papers.notify()
    assert papers.wait_for_ledger(2, "feature") == [(4, heads[-1]), (5, new)]
    assert papers.tasks("feature") == {"index@5": "ready"}


def test_only_the_new_main_branch_has_the_schedules(watch: Watch, tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/w.yaml": "- {name: nightly, command: x, schedule: '0 3 * * *'}\n"})
    repository.switch("trunk", "main")
    repository.push("trunk")
    papers = watch(repository.path, branches=("*",))
    scheduled = "select b.name from schedule s join branch b on b.id = s.branch_id order by b.name"
    assert papers.sql(scheduled) == [{"name": "main"}]
    run("git", "symbolic-ref", "HEAD", "refs/heads/trunk", cwd=repository.path)
    papers.notify()
    papers.wait_for(lambda: papers.sql(scheduled) == [{"name": "trunk"}])
