"""The locations of archives, the repository that a notice means, and the written form of a commit's
origin.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from arkqueue.errors import Invalid
from arkqueue.model import ArchiveKind, Origin
from arkqueue.repository import Identity, Location, locate, notice_key
from arkqueue.repository.origin import check_author, format_origin, origin_of_message, parse_origin, split_author
from tests.repositories import reaches


@pytest.mark.parametrize(
    ("given", "kind", "url"),
    [
        ("svn://host/repo/trunk/", ArchiveKind.SUBVERSION, "svn://host/repo/trunk"),
        ("svn+ssh://me@host/repo", ArchiveKind.SUBVERSION, "svn+ssh://me@host/repo"),
        ("https://host/svn/repo", ArchiveKind.SUBVERSION, "https://host/svn/repo"),
        ("https://host/team/repo.git", ArchiveKind.GIT, "https://host/team/repo.git"),
        ("ssh://git@host:2222/repo", ArchiveKind.GIT, "ssh://git@host:2222/repo"),
        ("git@host:team/repo.git", ArchiveKind.GIT, "git@host:team/repo.git"),
    ],
)
def test_remote_addresses_say_their_kind(given: str, kind: ArchiveKind, url: str) -> None:
    location = locate(given)
    assert (location.kind, location.url, location.needs_mirror) == (kind, url, kind is ArchiveKind.GIT)


def test_the_kind_can_be_said() -> None:
    assert locate("https://host/team/repo", ArchiveKind.GIT).kind is ArchiveKind.GIT


def test_local_paths_become_absolute_and_urls_of_subversion_are_quoted(tmp_path: Path) -> None:
    location = locate(f"{tmp_path}/a b/../x y/", ArchiveKind.SUBVERSION)
    assert location.url == f"file://{tmp_path}/x%20y"
    assert locate(f"file://localhost{tmp_path}/x%20y", ArchiveKind.GIT).url == f"{tmp_path}/x y"
    assert locate("./a:b", ArchiveKind.GIT).url == str(Path("a:b").absolute())


@pytest.mark.parametrize(
    "given", ["--upload-pack=evil:x", "ext::sh -c evil", "gopher://x/y", "ssh:///x", "/nowhere/at/all"]
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(Invalid):
        locate(given)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/srv/r", "file:///srv/r/"),
        ("/srv/r.git", "/srv/r"),
        ("/srv/a b", "file://localhost/srv/a%20b"),
        ("/srv/r/.git", "/srv/r/"),
        ("https://Host/r", "https://me:secret@host:443/r.git/"),
        ("git@host:r.git", "ssh://git@host/r"),
        ("git@host:r.git", "ssh://host:22/r"),
        ("8D2D2D24-4A1B-4E5F-9F60-0123456789AB", "8d2d2d24-4a1b-4e5f-9f60-0123456789ab"),
    ],
)
def test_the_same_repository_has_one_key(one: str, other: str) -> None:
    assert notice_key(one) == notice_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/srv/r", "/srv/r2"),
        ("https://host/r", "https://host:8443/r"),
        ("https://host/r", "http://host/r"),
        ("svn://host/r", "svn://host/R"),
        ("/srv/r", "svn://host/srv/r"),
    ],
)
def test_other_repositories_have_other_keys(one: str, other: str) -> None:
    assert notice_key(one) != notice_key(other)


def test_a_notice_reaches_the_archive_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "r")
    identity = Identity(
        ArchiveKind.SUBVERSION, f"file://{tmp_path}/link", "8d2d2d24-4a1b-4e5f-9f60-0123456789ab", "trunk"
    )
    assert reaches(str(tmp_path / "r"), identity)
    assert reaches(identity.uuid, identity)
    assert not reaches("", identity)
    assert not reaches("nonsense ::: ://", identity)


def test_a_password_is_never_shown() -> None:
    location = Location(ArchiveKind.GIT, "https://me:secret@host/r", "me", "secret")
    assert location.shown == "https://me@host/r"
    assert "secret" not in repr(location)


@pytest.mark.parametrize("task", ["A@1/t", "A:b@3.2/t/i;tem; generation=9", "it's", "  two\nlines "])
def test_an_origin_comes_back_as_it_was_written(task: str) -> None:
    value = format_origin(Origin(task, 3))
    assert "\n" not in value
    assert parse_origin(value) == Origin(" ".join(task.split()), 3)


@pytest.mark.parametrize(
    "value", ["", "A@1/t", "A@1/t; generation=", "A; generation=-1", "; generation=1", "A; generation=1x"]
)
def test_what_is_no_origin_is_none(value: str) -> None:
    assert parse_origin(value) is None


def test_the_last_trailer_of_a_message_counts() -> None:
    message = "x\n\nArkqueue-Origin: A@1/t; generation=1\n\nArkqueue-Origin: B@2/t; generation=2 \n"
    assert origin_of_message(message) == Origin("B@2/t", 2)
    assert origin_of_message("about Arkqueue-Origin: A@1/t; generation=1") is None


def test_an_author_is_divided_without_backtracking() -> None:
    assert split_author("  Ark  Queue  <bot@example.org> ") == ("Ark  Queue", "bot@example.org")
    with pytest.raises(Invalid, match="is not a valid author"):
        check_author(ArchiveKind.GIT, " " * 100_000)
