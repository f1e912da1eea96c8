"""Hostile commits: each is small to push, and expensive for a reader without limits. The tests use
them, and so does the benchmark of a server under attack.

An attack takes a Git repository and pushes one revision to its main branch.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping

from tests.repositories import GitRepository, SubversionRepository

Attack = Callable[[GitRepository], None]

STARS = "*a" * 10 + "b"
"""A pattern for which a backtracking matcher needs exponential time."""


def stored(repository: GitRepository, command: str, *options: str, text: str) -> str:
    """Writes a Git object with the given text. Returns its id."""
    done = subprocess.run(
        ["git", command, *options], cwd=repository.work, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.strip()


def a_tree_without_end(repository: GitRepository, levels: int = 4, *, entries: int = 1000, beside: str = "") -> str:
    """The id of a tree of ``levels`` levels. Each level has 1,000 entries that all name the same
    subtree, so four levels stand for 10¹² files in a few kilobytes. ``beside``: further entries of
    the top level, in the format of ``git mktree``.
    """
    id = stored(repository, "hash-object", "-w", "--stdin", text="x")
    mode, kind = "100644", "blob"
    for level in range(levels):
        tree = "".join(f"{mode} {kind} {id}\t{n:04}\n" for n in range(entries))
        id, mode, kind = stored(repository, "mktree", text=tree + beside * (level == levels - 1)), "040000", "tree"
    return id


def many_names_of_one_file(repository: GitRepository, names: int = 6000) -> str:
    """The id of a tree whose `_workflows` folder contains one file of 1 MiB under the given number
    of names.
    """
    blob = stored(repository, "hash-object", "-w", "--stdin", text="#" * 2**20)
    folder = stored(repository, "mktree", text="".join(f"100644 blob {blob}\t{n:04}.yaml\n" for n in range(names)))
    return stored(repository, "mktree", text=f"040000 tree {folder}\t_workflows\n")


def _stars(repository: GitRepository) -> None:
    workflow = f"- {{name: a, command: 'true', checkout: none, paths: ['{STARS}'], branches: ['{STARS}', main]}}\n"
    repository.commit({"_workflows/a.yaml": workflow, "a" * 200: "x"})


def _patterns(repository: GitRepository) -> None:
    """60,000 patterns, and 1,000 changed paths: 60 million comparisons."""
    tasks = "".join(
        f"- {{name: t{task}, command: x, paths: [{', '.join(f'z{task}-{n}' for n in range(1000))}]}}\n"
        for task in range(60)
    )
    blob = stored(repository, "hash-object", "-w", "--stdin", text=tasks)
    folder = stored(repository, "mktree", text=f"100644 blob {blob}\ta.yaml\n")
    _push(repository, a_tree_without_end(repository, 1, beside=f"040000 tree {folder}\t_workflows\n"))


def _endless(repository: GitRepository) -> None:
    workflow = "- {name: a, command: 'true', checkout: none, paths: ['x/**']}\n"
    blob = stored(repository, "hash-object", "-w", "--stdin", text=workflow)
    folder = stored(repository, "mktree", text=f"100644 blob {blob}\ta.yaml\n")
    _push(repository, a_tree_without_end(repository, beside=f"040000 tree {folder}\t_workflows\n"))


def tasks_of_a_tree_without_end(repository: GitRepository) -> None:
    """Pushes three tasks that need a tree of 10⁹ files: the whole tree (`all`), a folder of the
    tree (`some`), and a working copy (`copy`).
    """
    wanted = {"all": "tree", "some": "['0000']", "copy": "working-copy"}
    workflow = "".join(f"- {{name: {name}, command: ls, checkout: {checkout}}}\n" for name, checkout in wanted.items())
    blob = stored(repository, "hash-object", "-w", "--stdin", text=workflow)
    folder = stored(repository, "mktree", text=f"100644 blob {blob}\ta.yaml\n")
    _push(repository, a_tree_without_end(repository, 3, beside=f"040000 tree {folder}\t_workflows\n"))


def a_task_of_as_many_files_as_it_may_have(repository: GitRepository) -> None:
    """Pushes a task `all` with several hundred thousand files, which take a minute to write."""
    blob = stored(repository, "hash-object", "-w", "--stdin", text="- {name: all, command: ls}\n")
    folder = stored(repository, "mktree", text=f"100644 blob {blob}\ta.yaml\n")
    beside = f"040000 tree {folder}\t_workflows\n"
    _push(repository, a_tree_without_end(repository, 2, entries=990, beside=beside))


def a_task_of_a_copied_folder_without_end(repository: SubversionRepository, copies: int = 1001) -> None:
    """Commits a task `all` with slightly more than a million files, in two small revisions: a
    folder of 1,000 files, and 1,001 copies of that folder.
    """
    text = repository.a_file("x")
    repository.change("mkdir", "a", *(part for n in range(1000) for part in ("put", text, f"a/{n:04}")))
    workflow = ("put", repository.a_file("- {name: all, command: ls}\n"), "_workflows/a.yaml")
    words = (part for n in range(copies) for part in ("cp", "HEAD", "a", f"{n:04}"))
    repository.change("mkdir", "_workflows", *workflow, *words)


def _many_files(repository: GitRepository) -> None:
    _push(repository, many_names_of_one_file(repository))


def _long_names(repository: GitRepository) -> None:
    names = [f"{'n' * 80}{number:05}" for number in range(3000)]
    tasks = "".join(f"- {{name: {name}, command: x, depends: [{name[:-1]}x]}}\n" for name in names)
    repository.commit({"_workflows/a.yaml": tasks})


def _many_faults(repository: GitRepository) -> None:
    repository.commit({"_workflows/a.yaml": "- name: x\n  command: y\n  depends: [" + "q, " * 200_000 + "q]\n"})


def _long_message(repository: GitRepository) -> None:
    said = repository.work.with_name(f"{repository.work.name}-message")
    said.write_text("m" * 10_000_000)
    _push(repository, "HEAD^{tree}", "-F", str(said))
    said.unlink()


def _push(repository: GitRepository, tree: str, *options: str) -> None:
    """Pushes a revision with the given tree, without checking the tree out in the clone."""
    id = repository.git("commit-tree", tree, "-p", "HEAD", *(options or ("-m", "harmless"))).strip()
    repository.git("push", "-q", "origin", f"{id}:{repository.branch}")


ATTACKS: Mapping[str, Attack] = {
    "patterns with many stars": _stars,
    "60,000 patterns of paths": _patterns,
    "a tree without end": _endless,
    "6,000 workflow files": _many_files,
    "3,000 long names, none spelt right": _long_names,
    "200,000 faults": _many_faults,
    "a message of 10 MB": _long_message,
}
