"""Names of attachments from senders: hostile names are refused, each with its fault."""

from __future__ import annotations

import pytest

from arkqueue.model import Attachment
from arkqueue.workflow.attachments import digest_of, misnamed


def files(*names: str) -> list[Attachment]:
    return [Attachment(name, 1, "0" * 64) for name in names]


@pytest.mark.parametrize(
    "name", ["a", "a/b.tif", "Ä ö/ﬁle.txt", "a b", "-rf", "..a", "a..", ".hidden", "日本", "a\\b", "x" * 255]
)
def test_ordinary_names_are_taken(name: str) -> None:
    assert misnamed(files(name)) == []


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *[(name, "is not a path inside a folder") for name in ("..", "../a", "a/../b", "/etc/passwd", "a//b", "a/", ".", "a/./b", "", "/")],
        *[(name, "has a control character") for name in ("a\nb", "a\tb", "a\x00b", "a\x1b[31mb", "a\u202eb", "a\x7f", "a\r")],
        ("a\ud800", "is not UTF-8"),
        ("x" * 256, "is too long"),
        ("ä" * 128, "is too long"),
        ("/".join(["x" * 99] * 11), "is too long"),
    ],
)  # fmt: skip
def test_names_that_leave_or_hide_are_refused(name: str, fault: str) -> None:
    (said,) = misnamed(files(name))
    assert fault in said
    assert said.isprintable()


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("a", "a"), "'a' is given twice"),
        (("a", "A"), "'A' and 'a' are one name"),
        (("Scans/1", "scans/2"), "'scans' and 'Scans' are one name"),
        (("straße", "STRASSE"), "are one name"),
        (("\u00e9", "e\u0301"), "are one name"),
        (("a", "a/b"), "'a' is a file and a folder"),
        (("a/b", "a"), "'a' is a file and a folder"),
        (("a/b", "A"), "'A' and 'a' are one name"),
    ],
)
def test_names_that_a_file_system_takes_for_one_are_refused(names: tuple[str, ...], fault: str) -> None:
    (said,) = misnamed(files(*names))
    assert fault in said


def test_every_fault_is_told_and_folders_may_be_shared() -> None:
    assert misnamed(files("a/1", "a/2", "b/1", "a/b/1", "a/b/2")) == []
    assert len(misnamed(files("..", "a", "a", "\n", "b"))) == 3


def test_the_digest_is_of_names_sizes_and_digests_in_any_order() -> None:
    first = [Attachment("a", 1, "0" * 64), Attachment("b", 2, "1" * 64)]
    assert digest_of(first) == digest_of(reversed(first))
    for other in (Attachment("c", 1, "0" * 64), Attachment("a", 3, "0" * 64), Attachment("a", 1, "2" * 64)):
        assert digest_of([other, first[1]]) != digest_of(first)
