"""URLs that committers write: what they are read as, and which prefix allows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkqueue.repository.following.addresses import Address, NoAddress, read_address, relative
from arkqueue.repository.following.allowance import Allowance, Following, Login, check_prefix

ALLOWED = (
    "https://good.example/group",
    "svn+ssh://svn@good.example/srv",
    "git@good.example:team",
    "https://good.example:8443/x",
)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://good.example/group", "https://good.example/group"),
        ("HTTPS://Good.Example:443/group/lib.git/", "https://good.example/group/lib.git"),
        ("https://good.example/%67roup/a%20b", "https://good.example/group/a%20b"),
        ("https://good.example:8443/x/y", "https://good.example:8443/x/y"),
        ("git@good.example:team/lib.git", "git@good.example:team/lib.git"),
        ("ssh://git@good.example/~/team/lib.git", "git@good.example:team/lib.git"),
        ("svn+ssh://svn@good.example:22/srv/a", "svn+ssh://svn@good.example/srv/a"),
    ],
)
def test_one_address_has_one_spelling_and_is_allowed(url: str, canonical: str) -> None:
    address = read_address(url)
    assert str(address) == canonical
    assert read_address(str(address)) == address
    assert Allowance(Following(ALLOWED)).allows(address)


@pytest.mark.parametrize(
    "url",
    [
        "https://good.example/groups/lib",
        "https://good.example/Group/lib",
        "https://good.example.evil/group/lib",
        "https://evil.example/https://good.example/group",
        "http://good.example/group/lib",
        "https://good.example:444/group/lib",
        "https://good.example./group/lib",
        "svn+ssh://root@good.example/srv/a",
        "git@good.example:/team/lib.git",
        "good.example:team/lib.git",
        "ssh://git@good.example/team/lib.git",
    ],
)
def test_similar_addresses_are_not_allowed(url: str) -> None:
    try:
        address = read_address(url)
    except NoAddress:
        return
    assert not Allowance(Following(ALLOWED)).allows(address)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/srv/git/other",
        "../other",
        "file:///srv/git/other",
        "ext::sh -c 'touch pwned'",
        "ext::https://good.example/group",
        "fd::17",
        "ftp://good.example/group",
        "https://good.example@evil.example/group",
        "https://good.example:pw@evil.example/group",
        "https://user@good.example/group",
        "https://evil.example\\@good.example/group",
        "https://good.example\\.evil.example/group",
        "https://good.example/group/../other",
        "https://good.example/group/%2e%2e/other",
        "https://good.example/group/.%2E/other",
        "https://good.example/group%2f..%2fother",
        "https://good.example/group/%252e%252e/other",
        "https://good.example/group//other",
        "https://good.example/group/./other",
        "https://good.example/group/%00",
        "https://good.example/group/%ff",
        "https://good.example/group/a%",
        "https://good.example/group/a\r",
        "https://good.example/group/a\n",
        "https://good.example/group?x",
        "https://good.example/group#x",
        "https://good.example:x/group",
        "https://good.example:99999/group",
        "https://:443/group",
        "https:///group",
        "https://-good.example/group",
        "ssh://-oProxyCommand=touch/x",
        "ssh://-oProxyCommand=touch%20pwned@good.example/x",
        "-oProxyCommand=touch:x",
        "git@-oProxyCommand=touch:x",
        "git@good.example:-x",
        "git@good.example:~root/x",
        "git@good.example:~/x",
        "ssh://git@good.example/~/-x",
        "ssh://git@good.example:22/~/~root/x",
        "ssh://git@good.example/~/:x",
        "ssh://git@good.example/~/a%25b",
        "git@good.example:../other",
        "svn+ssh://svn:pw@good.example/srv",
        "svn+ssh://-oX@good.example/srv",
        "https://gооd.example/group",
        "https://good.example/group/\u202egpj",
    ],
)
def test_what_may_be_read_in_two_ways_is_nothing(url: str) -> None:
    with pytest.raises(NoAddress):
        read_address(url)


def test_relative_urls_stay_on_their_server() -> None:
    base = read_address("https://good.example/group/papers.git")
    assert str(relative(base, "../lib.git")) == "https://good.example/group/lib.git"
    assert str(relative(base, "../../other/lib.git")) == "https://good.example/other/lib.git"
    assert str(relative(read_address("git@good.example:team/a.git"), "../b.git")) == "git@good.example:team/b.git"
    for url in ("../../../lib", "../%2e%2e/lib", "..//evil.example/lib", "../a\n"):
        with pytest.raises(NoAddress):
            relative(base, url)
    with pytest.raises(NoAddress):
        relative(read_address("git@good.example:a.git"), "../../etc")


@given(st.text(alphabet="gh:/.@%2e\\?#-~ost", max_size=30))
def test_whatever_is_written_is_read_as_it_is_written_anew(path: str) -> None:
    for text in (path, f"https://host/{path}", f"https://{path}", f"ssh://{path}", f"g@host:{path}"):
        try:
            address = read_address(text)
        except NoAddress:
            continue
        assert read_address(str(address)) == address
        assert ".." not in address.path
        assert "@" not in address.host


def test_own_repository_is_allowed_by_its_own_prefix() -> None:
    own = Address("file", "", ("srv", "papers"))
    allowance = Allowance(Following(("^/lib", "/srv", "file:///srv")), own)
    assert allowance.allows(Address("file", "", ("srv", "papers", "lib", "x")))
    assert not allowance.allows(Address("file", "", ("srv", "papers", "trunk")))
    assert not allowance.allows(Address("file", "", ("srv", "other", "lib")))
    assert not Allowance(Following(("^/lib",))).allows(own)


@pytest.mark.parametrize("prefix", ["^/..", "^/a/../b", "^/a//b", "/srv", "file:///srv", "https://", "x", "ext::x"])
def test_prefix_that_can_allow_nothing_is_refused(prefix: str) -> None:
    with pytest.raises(NoAddress):
        check_prefix(prefix)


@pytest.mark.parametrize("prefix", ["^/", "^/lib", "https://good.example", "git@good.example:team/", "svn://x/y/"])
def test_prefixes_are_taken(prefix: str) -> None:
    check_prefix(prefix)


def test_password_is_that_of_the_longest_prefix_of_the_same_server() -> None:
    logins = (Login("https://good.example", "a"), Login("https://good.example/group", "b"), Login("https://good", "c"))
    allowance = Allowance(Following((), logins))

    def user(url: str) -> str | None:
        found = allowance.login(read_address(url))
        return found and found.username

    assert user("https://good.example/group/x") == "b"
    assert user("https://good.example/groups") == "a"
    assert user("https://good.example:444/group") is None
    assert user("http://good.example/group") is None
    assert user("https://good.example.evil/group") is None


def test_what_is_told_of_strangers_texts_is_one_line() -> None:
    allowance = Allowance(Following())
    allowance.refuse("external x", "https://u:secret@h/\x1b[2J\n" + "y" * 5000, "it has signs that no address has")
    (note,) = allowance.result().notes
    assert note.isprintable()
    assert "secret" not in note
    assert len(note) < 700
