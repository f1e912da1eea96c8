"""A Git tree is what ``git archive`` writes where no attribute counts, exported at once or brought
forward.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pygit2
import pytest

from arkqueue.repository import locate, open_archive
from tests.repositories import run
from tests.system.repository.test_update import picture, write_commit

NAMES = [b"a", b"b.txt", b"c d", "é".encode(), b"n\xff", b".gitattributes", b"-r"]
TEXTS = [
    b"", b"one\r\ntwo\n", b"$Id$ $Format:%H$\n", b"* text eol=crlf ident filter=evil export-subst\na export-ignore\n", bytes(range(256)),
]  # fmt: skip
OFF = "* -text -eol -crlf -ident -filter -working-tree-encoding -export-ignore -export-subst\n"


def changed(tree: dict[bytes, object], chosen: random.Random, depth: int = 0) -> dict[bytes, object]:
    """A tree in which one place differs. git writes no empty folders."""
    name = chosen.choice(NAMES)
    new, old = dict(tree), tree.get(name)
    if isinstance(old, dict) and chosen.random() < 0.7:
        new[name] = changed(old, chosen, depth + 1)
        if not new[name]:
            del new[name]
    elif old is not None and chosen.random() < 0.3:
        del new[name]
    elif depth < 3 and chosen.random() < 0.4 and name != b".gitattributes":
        new[name] = changed({b"a": (b"100644", b"1")}, chosen, depth + 1) or {b"a": (b"100644", b"1")}
    elif chosen.random() < 0.1 and name != b".gitattributes":
        new[name] = b"160000", b"\1" * 20
    else:
        mode = b"100644" if name == b".gitattributes" else chosen.choice([b"100644", b"100755", b"120000"])
        new[name] = mode, b"a/../x" if mode == b"120000" else chosen.choice(TEXTS)
    return new


def check_history(place: Path, seed: int, revisions: int) -> None:
    chosen, tree = random.Random(seed), dict[bytes, object]({b"keep": (b"100644", b"1")})
    repository = pygit2.init_repository(f"{place}/a.git", bare=True)
    (place / "a.git" / "info" / "attributes").write_text(OFF)
    archive, forward, before = open_archive(locate(f"{place}/a.git")), place / "forward", ""
    for number in range(revisions):
        tree = changed(tree, chosen)
        commit = write_commit(repository, tree)
        theirs, ours = place / f"theirs-{number}", place / f"ours-{number}"
        theirs.mkdir()
        packed = subprocess.run(
            ["git", "-c", "tar.umask=user", "archive", "--format=tar", commit],
            cwd=repository.path, env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}, check=True, capture_output=True,
        )  # fmt: skip
        subprocess.run(
            ["tar", "-x", "--same-permissions", "--no-same-owner", "-C", theirs], input=packed.stdout, check=True
        )
        archive.export(commit, ours)
        if before:
            archive.update(before, commit, forward)
        else:
            archive.export(commit, forward)
        before = commit
        assert picture(ours) == picture(theirs), f"revision {number}"
        assert picture(forward) == picture(theirs), f"revision {number}, brought forward"
        run("rm", "-r", theirs, ours)


def test_a_made_history_is_exported_as_git_archives_it(tmp_path: Path) -> None:
    check_history(tmp_path, 1, 20)


@pytest.mark.full
def test_a_long_made_history_is_exported_as_git_archives_it(tmp_path: Path) -> None:
    check_history(tmp_path, 2, 300)
