"""Lines of ``svn:externals``, as Subversion reads them."""

from __future__ import annotations

import pytest

from arkqueue.repository.following.addresses import Address, NoAddress, local_address, read_address
from arkqueue.repository.subversion.definitions import (
    Definition,
    NoDefinition,
    address_of,
    lines_of,
    read_definition,
)

URL = "http://h/lib"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{URL} lib", Definition(URL, ("lib",), None, None)),
        (f"{URL}@7 a/b/", Definition(URL, ("a", "b"), 7, 7)),
        (f"-r 5 {URL} lib", Definition(URL, ("lib",), 5, None)),
        (f"-r5 {URL}@7 ./lib", Definition(URL, ("lib",), 5, 7)),
        (f"-rHEAD {URL}@HEAD lib", Definition(URL, ("lib",), None, None)),
        (f"lib {URL}", Definition(URL, ("lib",), None, None)),
        (f"lib -r 5 {URL}", Definition(URL, ("lib",), 5, 5)),
        (f"lib -r5 {URL}@7", Definition(f"{URL}@7", ("lib",), 5, 5)),
        ("^/a@3 b", Definition("^/a", ("b",), 3, 3)),
        ("../a b", Definition("../a", ("b",), None, None)),
        (f'"{URL}/a b" "c d"', Definition(f"{URL}/a b", ("c d",), None, None)),
        ("http://u@h/lib lib", Definition("http://u@h/lib", ("lib",), None, None)),
    ],
)
def test_the_six_forms(line: str, expected: Definition) -> None:
    assert read_definition(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "",
        URL,
        f"{URL} a b",
        f"-r {URL} lib",
        f"-rPREV {URL} lib",
        f"{URL}@{{2020-01-01}} lib",
        f"{URL} /etc",
        f"'{URL} x",
        f"{URL}/{'a' * 10_000_000} lib",
    ],
)
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(NoDefinition):
        read_definition(line)


def test_lines() -> None:
    assert lines_of("# x\r\n a b \n\n\rc d") == ["a b", "c d"]


ROOT, FOLDER = read_address("https://h:8443/svn/repo"), read_address("https://h:8443/svn/repo/trunk/a")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("^/lib", "https://h:8443/svn/repo/lib"),
        ("^/../other/lib", "https://h:8443/svn/other/lib"),
        ("//g/x", "https://g/x"),
        ("/x/y", "https://h:8443/x/y"),
        ("../../lib", "https://h:8443/svn/repo/lib"),
        ("svn://g/x", "svn://g/x"),
    ],
)
def test_relative_urls(url: str, address: str) -> None:
    assert str(address_of(Definition(url, ("t",), None, None), FOLDER, ROOT)) == address


@pytest.mark.parametrize(
    "url",
    ["^/../../../x", "../../../../../x", "//u@g/x", "^/a/%2e%2e/b", "x", "file://host/x", "file:///a/../b", "^/a\\b"],
)
def test_urls_that_lead_elsewhere(url: str) -> None:
    with pytest.raises(NoAddress):
        address_of(Definition(url, ("t",), None, None), FOLDER, ROOT)


def test_urls_of_a_repository_on_this_host() -> None:
    root = local_address("/srv/papers")
    folder = Address("file", "", ("srv", "papers", "trunk"))

    def path(url: str) -> tuple[str, ...]:
        return address_of(Definition(url, ("t",), None, None), folder, root).path

    assert path("^/lib") == ("srv", "papers", "lib")
    assert path("../lib") == ("srv", "papers", "lib")
    assert path("^/../other") == ("srv", "other")
    assert path("file:///srv/a%20b") == ("srv", "a b")
    with pytest.raises(NoAddress):
        path("//evil/lib")
