"""A tree that is brought to another revision is what an export of that revision is, whatever the
history holds.
"""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
from pathlib import Path

import pygit2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pygit2.enums import ObjectType

from arkqueue.errors import ArchiveError, NotFound, WorkspaceError
from arkqueue.repository import Archive, Survey, SurveyOptions, locate, open_archive
from arkqueue.repository.git import dates
from tests.repositories import (
    GitRepository,
    Link,
    SubversionRepository,
    a_git_repository,
    a_subversion_repository,
)


def picture(folder: Path) -> dict[bytes, object]:
    """All that is below a folder: kinds, modes, texts, where links lead."""
    found: dict[bytes, object] = {}
    pending = [os.fsencode(folder)]
    while pending:
        for entry in os.scandir(pending.pop()):
            mode = entry.stat(follow_symlinks=False).st_mode
            path = entry.path.removeprefix(os.fsencode(folder) + b"/")
            if stat.S_ISDIR(mode):
                found[path] = oct(mode)
                pending.append(entry.path)
            elif stat.S_ISLNK(mode):
                found[path] = os.readlink(entry.path)
            else:
                with open(entry.path, "rb") as file:
                    found[path] = oct(mode), file.read()
    return found


def size(folder: Path) -> int:
    def blocks(status: os.stat_result) -> int:
        return 1 if stat.S_ISDIR(status.st_mode) else -(-status.st_size // 4096)

    return sum(blocks(path.lstat()) * 4096 for path in folder.rglob("*"))


def check_every_step(archive: Archive, revisions: list[str], place: Path) -> None:
    """Between each two revisions, forth and back; and one tree through all of them, last to first."""
    fresh: dict[str, dict[bytes, object]] = {}
    for revision in revisions:
        archive.export(revision, place / f"fresh-{revision}")
        fresh[revision] = picture(place / f"fresh-{revision}")
    for before, after in itertools.permutations(revisions, 2):
        tree = place / f"{before}-{after}"
        archive.export(before, tree)
        size_before = size(tree)
        old = {path: os.lstat(os.fsencode(tree) + b"/" + path).st_ino for path in fresh[before]}
        _, change = archive.update(before, after, tree)
        assert change is not None
        assert picture(tree) == fresh[after]
        assert size(tree) - size_before == change.grown
        for path in fresh[after]:
            if os.lstat(os.fsencode(tree) + b"/" + path).st_ino != old.get(path):
                assert path in change.made
    tree = place / "through"
    archive.export(revisions[-1], tree)
    for before, after in itertools.pairwise(reversed(revisions)):
        archive.update(before, after, tree)
    assert picture(tree) == fresh[revisions[0]]


# Each kind of thing, becoming each other kind


def test_whatever_a_place_in_a_git_tree_was_it_becomes_what_it_is(tmp_path: Path) -> None:
    repository = pygit2.init_repository(f"{tmp_path}/a.git", bare=True)
    kinds: list[dict[bytes, object]] = [
        {},
        {b"x": (b"100644", b"1")},
        {b"x": (b"100755", b"1")},
        {b"x": (b"120000", b"1")},
        {b"x": (b"160000", b"\1" * 20)},
        {b"x": {}},
        {b"x": {b"x": (b"100644", b"1")}},
        {b"x": {b"x": {b"x": (b"100644", b"1")}}},
    ]
    revisions = [write_commit(repository, {**kind, b"keep": (b"100644", b"1")}) for kind in kinds]
    check_every_step(open_archive(locate(f"{tmp_path}/a.git")), revisions, tmp_path)


@pytest.mark.full
def test_whatever_a_place_in_a_subversion_tree_was_it_becomes_what_it_is(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    revisions = [repository.commit({"trunk/keep": "1"}), repository.change("mkdir", "trunk/x")]
    revisions += [repository.commit({"trunk/x/x": "1"}), repository.delete("trunk/x")]
    text = tmp_path / "text"
    for words in ("1", "link a", "link b", "linger"):
        text.write_text(words)
        revisions.append(repository.change("put", str(text), "trunk/x"))
        for property in ("svn:special", "svn:executable"):
            revisions.append(repository.propset(property, "*", "trunk/x"))
        revisions += [repository.change("propdel", name, "trunk/x") for name in ("svn:special", "svn:executable")]
    for words in ("1", "link a", "link b", "linger"):  # the text alone changes
        text.write_text(words)
        special = ["propset", "svn:special", "*", "trunk/x"] if words == "1" else []
        revisions.append(repository.change("put", str(text), "trunk/x", *special))
    check_every_step(open_archive(locate(f"{tmp_path}/svn/trunk")), revisions, tmp_path)


def test_a_folder_that_was_replaced_by_another_of_its_name_has_nothing_of_the_old_one(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    revisions = [repository.commit({"trunk/x": "1", "trunk/d/x": "1", "other/y": "1"})]
    repository.delete("trunk")
    revisions += [repository.copy("other", "trunk"), repository.commit({"trunk/x": "1"})]
    check_every_step(open_archive(locate(f"{tmp_path}/svn/trunk")), revisions, tmp_path)


# Random Git histories

_names = st.sampled_from([b"a", b"b", b"c.txt", b"d\xff", b"\xc3\xa9 x", b".git", b"link to"])
_leaves = st.one_of(
    st.tuples(
        st.sampled_from([b"100644", b"100755", b"120000", b"100664"]), st.sampled_from([b"1", b"2", b"x" * 3000])
    ),
    st.just((b"160000", b"\1" * 20)),
)
_trees = st.recursive(
    st.dictionaries(_names, _leaves, max_size=3),
    lambda children: st.dictionaries(_names, st.one_of(_leaves, children), max_size=4),
    max_leaves=8,
)


def write_tree(repository: pygit2.Repository, tree: dict[bytes, object]) -> pygit2.Oid:
    """A tree as other tools than git may write it: empty folders among it."""
    lines = []
    for name, entry in tree.items():
        if isinstance(entry, dict):
            mode, id = b"40000", write_tree(repository, entry).raw
        else:
            assert isinstance(entry, tuple)
            mode, text = entry
            id = text if mode == b"160000" else repository.create_blob(text).raw
        lines.append((name + (b"/" if mode == b"40000" else b""), mode + b" " + name + b"\0" + id))
    return repository.write(ObjectType.TREE, b"".join(line for _, line in sorted(lines)))


def write_commit(repository: pygit2.Repository, tree: dict[bytes, object]) -> str:
    who = pygit2.Signature("Ada", "ada@example.org", 0, 0)
    return str(repository.create_commit(None, who, who, "", write_tree(repository, tree), []))


@pytest.mark.full
@settings(max_examples=60)
@given(trees=st.lists(_trees, min_size=2, max_size=3, unique_by=repr))
def test_git_update_is_an_export(trees: list[dict[bytes, object]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        repository = pygit2.init_repository(f"{folder}/a.git", bare=True)
        revisions = sorted({write_commit(repository, tree) for tree in trees})
        check_every_step(open_archive(locate(f"{folder}/a.git")), revisions, Path(folder))


# Random Subversion histories

_paths = st.sampled_from(["a", "b", "a/a", "a/b", "a/b/c", "é x", ".svn", "a/.git"])
_texts = st.sampled_from(
    ["", "1", "2\n", "link a", "link nowhere", "link", "linger", "x" * 200_000 + "1", "x" * 200_000 + "2"]
)
_actions = st.one_of(
    st.tuples(st.just("put"), _paths, _texts),
    st.tuples(st.just("mkdir"), _paths),
    st.tuples(st.just("rm"), _paths),
    st.tuples(st.just("cp"), _paths, _paths),
    st.tuples(st.sampled_from(["propset", "propdel"]), _paths, st.sampled_from(["svn:special", "svn:executable", "x"])),
)


class History:
    """Turns random wishes into what svnmucc can do: it knows what is there."""

    def __init__(self, repository: SubversionRepository) -> None:
        self.repository = repository
        self.there = {"trunk": True}  # whether it is a folder
        self.texts = itertools.count()
        repository.mkdir("trunk")

    def commit(self, wishes: list[tuple[str, ...]]) -> str:
        before, words, touched = dict(self.there), [], set[str]()
        for action, name, *more in wishes:
            path = f"trunk/{name}"
            related = {
                other for other in touched if (other + "/").startswith(path + "/") or path.startswith(other + "/")
            }
            if (related and action != "mkdir") or not self.there.get(path.rpartition("/")[0]):
                continue  # svnmucc takes each place once
            exists = path in self.there
            match action:
                case "put" if not self.there.get(path):
                    file = self.repository.path.with_name(f"text-{next(self.texts)}")
                    file.write_text(more[0])
                    words += ["put", str(file), path]
                    self.there[path] = False
                case "mkdir" if not exists:
                    words += ["mkdir", path]
                    self.there[path] = True
                case "rm" if exists:
                    words += ["rm", path]
                    self.gone(path)
                case "cp" if (
                    (source := f"trunk/{more[0]}") in before and not path.startswith(source + "/") and not exists
                ):
                    words += ["cp", "HEAD", source, path]
                    new = {
                        path + old.removeprefix(source): kind
                        for old, kind in before.items()
                        if (old + "/").startswith(source + "/")
                    }
                    self.there |= new
                case "propset" if exists and (not self.there[path] or more[0] == "x"):
                    words += ["propset", more[0], "*", path]
                case "propdel" if exists:
                    words += ["propdel", more[0], path]
                case _:
                    continue
            touched.add(path)
        return self.repository.change(*words) if words else self.repository.empty()

    def gone(self, path: str) -> None:
        self.there = {other: kind for other, kind in self.there.items() if not (other + "/").startswith(path + "/")}


@pytest.mark.full
@settings(max_examples=30)
@given(histories=st.lists(st.lists(_actions, min_size=1, max_size=8), min_size=2, max_size=3))
def test_subversion_update_is_an_export(histories: list[list[tuple[str, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(a_subversion_repository(Path(folder)))
        revisions = [history.commit(wishes) for wishes in histories]
        check_every_step(open_archive(locate(f"{folder}/svn/trunk")), revisions, Path(folder))


# One step at a time


def test_an_update_that_cannot_take_back_that_the_tree_is_good_changes_nothing(tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    first, second = repository.commit({"x": "1"}), repository.commit({"x": "2"})
    archive = open_archive(locate(str(repository.path)))
    archive.export(first, tmp_path / "tree")

    (tmp_path / "good").mkdir()
    with pytest.raises(WorkspaceError, match="cannot be written"):
        archive.update(first, second, tmp_path / "tree", good=tmp_path / "good")
    assert picture(tmp_path / "tree") == {b"x": (oct(0o100644), b"1")}


def opened(repository: SubversionRepository | GitRepository) -> Archive:
    return open_archive(locate(str(repository.path)))


def test_nothing_is_begun_for_a_revision_that_is_not_there(
    repository: SubversionRepository | GitRepository, tmp_path: Path
) -> None:
    first = repository.commit({"x": "1"})
    good = tmp_path / "good"
    good.touch()
    opened(repository).export(first, tmp_path / "tree")
    unknown = "77" if isinstance(repository, SubversionRepository) else "7" * 40
    with pytest.raises((NotFound, ArchiveError)):
        opened(repository).update(first, unknown, tmp_path / "tree", good=good)
    with pytest.raises(WorkspaceError, match=f"revision {unknown}: is another one now"):
        opened(repository).update(unknown, first, tmp_path / "tree", good=good)
    assert good.exists()


def test_nothing_is_begun_where_the_tree_was_exported_from_another_revision_of_the_number(
    repository: SubversionRepository | GitRepository, tmp_path: Path
) -> None:
    first, second = repository.commit({"x": "1"}), repository.commit({"x": "2"})
    archive, tree, good = opened(repository), tmp_path / "tree", tmp_path / "good"
    good.touch()
    archive.export(first, tree)
    key, another = (archive.survey(revision).tree_key for revision in (first, second))
    with pytest.raises(WorkspaceError, match=f"revision {first}: is another one now"):
        archive.update(first, second, tree, good=good, before_key=another)
    assert good.exists()
    found = archive.update(first, second, tree, good=good, before_key=key, others=[another])
    assert found == (archive.survey(second), None), "another tree has these files"
    assert good.exists()
    archive.update(first, second, tree, good=good, before_key=key)
    assert not good.exists()
    assert picture(tree) == {b"x": (oct(0o100644), b"2")}


def test_one_survey_tells_what_each_question_tells(
    repository: SubversionRepository | GitRepository, tmp_path: Path
) -> None:
    first, second = repository.commit({"x": "1"}), repository.commit({"x": "2", "d/y": "1"})
    archive = opened(repository)
    everything = SurveyOptions(first, changes=True, notes=True)
    survey = archive.survey(second, everything)
    archive.export(first, tmp_path / "tree")
    assert archive.update(first, second, tmp_path / "tree", options=everything)[0] == survey
    assert survey == Survey(
        archive.survey(second).tree_key, archive.changes(first, second), archive.not_followed(second)
    )
    assert archive.survey(second, SurveyOptions(changes=True)).changes == archive.changes(None, second)
    unknown = "77" if isinstance(repository, SubversionRepository) else "7" * 40
    assert archive.survey(second, SurveyOptions(unknown, changes=True)).changes is None
    with pytest.raises((NotFound, ArchiveError)):
        archive.survey(unknown)


@pytest.mark.parametrize("change", ["rewritten", "removed", "made a link", "made a folder", "folder made a link"])
def test_what_was_changed_by_hand_is_noticed_where_it_matters_and_never_followed(
    repository: SubversionRepository | GitRepository, tmp_path: Path, change: str
) -> None:
    first = repository.commit({"d/x": "1", "keep": "1"})
    second = repository.commit({"d/x": "2", "d/new": "2"})
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    opened(repository).export(first, tree)
    outside.mkdir()
    (outside / "x").write_text("mine")
    place = tree / "d" / "x"
    match change:
        case "rewritten":
            place.write_text("other")
        case "removed":
            place.unlink()
        case "made a link":
            place.unlink()
            place.symlink_to(outside / "x")
        case "made a folder":
            place.unlink()
            place.mkdir()
        case "folder made a link":
            (tree / "d").rename(tmp_path / "was d")
            (tree / "d").symlink_to(outside)
    try:
        opened(repository).update(first, second, tree)
    except WorkspaceError:
        pass
    else:
        opened(repository).export(second, tmp_path / "fresh")
        assert picture(tree) == picture(tmp_path / "fresh")
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"x": "mine"}


def test_a_served_repository_tells_the_difference_too(tmp_path: Path) -> None:
    repository = a_subversion_repository(tmp_path)
    first = repository.commit({"d/big": "x" * 300_000 + "1", "d/small": "1", "link": Link("d")})
    repository.move("d", "e")
    second = repository.commit({"e/big": "x" * 300_000 + "2", "link": Link("e"), "new/x": "1"})
    with repository.served() as server:
        archive = open_archive(locate(server.url))
        archive.export(first, tmp_path / "tree")
        archive.update(first, second, tmp_path / "tree")
        archive.export(second, tmp_path / "fresh")
    assert picture(tmp_path / "tree") == picture(tmp_path / "fresh")


def test_an_update_touches_what_differs_and_nothing_else(
    repository: SubversionRepository | GitRepository, tmp_path: Path
) -> None:
    first = repository.commit({f"d{number}/x": "1" for number in range(5)})
    second = repository.commit({"d3/x": "2"})
    opened(repository).export(first, tmp_path / "tree")
    _, change = opened(repository).update(first, second, tmp_path / "tree")
    assert change is not None
    assert (change.made, change.grown) == ((b"d3/x",), 0)


# Times


def test_a_git_file_has_the_date_of_the_commit_that_last_changed_it(tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    commits = [
        repository.commit(files, at=at)
        for at, files in (
            (1000, {"a": "1", "b": "1", "d/c": "1"}),
            (3000, {"a": "2"}),
            (2000, {"d/c": "2"}),
            (4000, {"a": None}),
        )
    ]
    repository.git("checkout", "-q", "-b", "side", commits[0])
    repository.commit({"side/x": "1"}, at=500)
    repository.switch("main")
    repository.git("merge", "-q", "--no-ff", "side", GIT_AUTHOR_DATE="@5000 +0000", GIT_COMMITTER_DATE="@5000 +0000")
    repository.push()
    archive = opened(repository)
    expected = [
        {"a": 1000, "b": 1000, "d/c": 1000},
        {"a": 3000, "b": 1000, "d/c": 1000},
        {"a": 3000, "b": 1000, "d/c": 2000},
        {"b": 1000, "d/c": 2000},
        {"b": 1000, "d/c": 2000, "side/x": 5000},
    ]
    for number, (commit, found) in enumerate(zip([*commits, repository.id()], expected, strict=True)):
        archive.export(commit, tmp_path / f"{number}")
        assert seconds_of(tmp_path / f"{number}") == found
    archive.update(commits[0], repository.id(), tmp_path / "0")
    assert seconds_of(tmp_path / "0") == expected[-1]


def test_a_revision_that_was_dated_in_the_future_counts_as_when_it_was_read(
    repository: SubversionRepository | GitRepository, tmp_path: Path
) -> None:
    first, second = repository.commit({"a": "1", "b": "1"}), repository.commit({"b": "2"})
    third = repository.commit({"d/c": "3"})
    archive, early = opened(repository), {second: 2000 * 10**9}
    archive.export(first, tmp_path / "forward")
    archive.update(first, third, tmp_path / "forward", early=early)
    archive.export(third, tmp_path / "anew", early=early)
    archive.export(third, tmp_path / "some", ["b", "d"], early=early)
    for place in ("forward", "anew", "some"):
        found = seconds_of(tmp_path / place)
        assert (found["b"], found["d/c"] > 2000) == (2000, True)
        assert place == "some" or found["a"] > 2000


def test_a_walk_for_dates_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = a_git_repository(tmp_path)
    for at in range(1000, 6000, 1000):
        last = repository.commit({"a": str(at)} if at == 1000 else {"b": str(at)}, at=at)
    monkeypatch.setattr(dates, "MOST_COMMITS", 2)
    opened(repository).export(last, tmp_path / "out")
    assert seconds_of(tmp_path / "out") == {"a": 3000, "b": 5000}
    monkeypatch.setattr(dates, "MOST_ENTRIES", 1)
    opened(repository).export(last, tmp_path / "short")
    assert seconds_of(tmp_path / "short") == {"a": 5000, "b": 5000}


def seconds_of(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): int(path.stat().st_mtime) for path in folder.rglob("*") if path.is_file()}
