"""``arkqueue check`` on files: no server is needed, and faults are told with place and remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.program import run_cli
from tests.repositories import a_git_repository
from tests.system.cli.conftest import cli_of_ordinary_user

ROOT = Path(__file__).parents[3]
EXAMPLES = [
    ROOT / "workflows-examples" / "ingest.json",
    *sorted((ROOT / "workflows-examples").rglob("_workflows")),
]
"""A workflow file, and the folders of the applications. `tests/unit/workflow/test_parse.py` judges the other files."""
FAULTY = "- name: indexing\n  comand: x\n- name: pdf\n  depends: [indexng]\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An archive's tree with one faulty workflow file."""
    (tmp_path / "_workflows").mkdir()
    (tmp_path / "_workflows" / "a.yaml").write_text(FAULTY)
    (tmp_path / "_workflows" / "notes.txt").write_text("not a workflow file")
    return tmp_path


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_have_no_faults(path: Path) -> None:
    done = run_cli("check", str(path))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"no faults: {path} (")


def test_faults_are_told_with_line_column_and_the_nearest_word(tree: Path) -> None:
    file = tree / "_workflows" / "a.yaml"
    for place in (tree, tree / "_workflows", file):
        done = run_cli("check", str(place))
        assert done.code == 1
        assert done.lines[0] == f"{file}:2:3: unknown field 'comand' (did you mean 'command'?)"
        assert done.lines[1].startswith(f"{file}:4:13: depends: there is no task 'indexng'")
        assert done.lines[1].endswith("(did you mean 'indexing'?)")
        assert len(done.lines) == 2


def test_faults_are_data_too(tree: Path) -> None:
    done = run_cli("check", str(tree), "--json")
    assert done.code == 1
    first = done.json["faults"][0]
    assert (first["line"], first["column"], first["word"], first["suggestion"]) == (2, 3, "comand", "command")


def test_what_tasks_will_not_get_is_a_note(tmp_path: Path) -> None:
    repository = a_git_repository(tmp_path)
    repository.commit({"_workflows/a.yaml": "- {name: a, command: 'true'}\n", ".gitattributes": "*.bin filter=lfs\n"})
    note = "Git LFS is not asked for its files; they are pointers where .gitattributes says so, in: the root"
    for place in (repository.work, repository.work / "_workflows" / "a.yaml"):
        done = run_cli("check", str(place))
        assert (done.code, done.lines[1:]) == (0, [f"note: {note}"])
    assert run_cli("check", str(repository.work), "--json").json["not_followed"] == [note]


def test_a_revision_with_too_much_is_told_before_it_is_committed(tree: Path) -> None:
    """By the same fault as its run would have; and files that are too large together are not read."""
    folder = tree / "_workflows"
    for number in range(6):
        with (folder / f"{number}.yaml").open("wb") as file:
            file.truncate(1 << 20)
    done = run_cli("check", str(tree))
    assert (done.code, len(done.lines)) == (1, 1)
    assert done.lines[0].startswith(f"{folder}: the workflow files here have 6,291,")
    for number in range(1001):
        (folder / f"{number}.yaml").write_text("")
    done = run_cli("check", str(folder))
    assert done.lines[0].startswith(f"{folder}: there are 1,002 workflow files here, more than 1,000")


def test_links_and_what_is_no_folder_are_faults(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server follows no link, and would pass over what is told here."""
    folder = tree / "_workflows"
    (folder / "a.yaml").write_text("- name: a\n")
    (folder / "b.yaml").symlink_to("a.yaml")
    done = run_cli("check", str(tree))
    assert (done.code, done.lines) == (
        1,
        [f"{folder}/b.yaml: this is a symbolic link, and links are not followed; put the file itself here"],
    )
    folder.rename(tree / "elsewhere")
    for make, said in (
        (lambda: folder.symlink_to("elsewhere"), "this is a symbolic link, and links are not followed; put the folder"),
        (lambda: folder.symlink_to("nowhere"), "this is a symbolic link"),
        (lambda: folder.write_text("text"), "this is not a folder; move it"),
    ):
        make()
        monkeypatch.chdir(tree)
        for place in ([], ["."], ["_workflows"]):
            done = run_cli("check", *place)
            assert done.code == 1
            assert done.lines[0].startswith(f"_workflows: {said}"), done.lines
        folder.unlink()


def test_nearest_folder_is_found_from_below(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "chapters" / "one").mkdir(parents=True)
    for here, shown in (
        (tree, "_workflows"),
        (tree / "chapters" / "one", "../../_workflows"),
        (tree / "_workflows", "."),
    ):
        monkeypatch.chdir(here)
        done = run_cli("check")
        assert done.code == 1
        assert done.lines[0].startswith(str(Path(shown) / "a.yaml") + ":2:3: ")


def test_tasks_of_several_files_know_each_other(tree: Path) -> None:
    (tree / "_workflows" / "a.yaml").write_text("- {name: a, depends: [b]}\n")
    (tree / "_workflows" / "b.json").write_text('[{"name": "b"}]')
    assert run_cli("check", str(tree)).out == f"no faults: {tree} (2 tasks)\n"
    assert run_cli("check", str(tree / "_workflows" / "a.yaml")).code == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"- name: a\n  depends: [*]\n", 'quote it: "*"'),
        (b"- name: a\n" + b" " * (2 << 20), "1 MiB"),
        (b'- name: "\\e[31m"\n', "\\x1b"),
    ],
)
def test_hostile_files_are_faults(tree: Path, content: bytes, said: str) -> None:
    (tree / "_workflows" / "a.yaml").write_bytes(content)
    done = run_cli("check", str(tree))
    assert done.code == 1
    assert said in done.out
    assert "\x1b" not in done.out


def test_places_without_workflow_files_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        ([], "no folder _workflows here or above"),
        (["nowhere"], "does not exist"),
        (["."], "no workflow file"),
    ):
        done = run_cli("check", *arguments)
        assert (done.code, done.out) == (2, ""), "the answer is no where there are faults"
        assert said in done.err
        assert done.err.count("\n") == 1


def test_folder_that_cannot_be_read_is_told(open_folder: Path) -> None:
    tree = open_folder
    (tree / "_workflows").mkdir()
    (tree / "_workflows" / "a.yaml").write_text(FAULTY)
    (tree / "_workflows").chmod(0o700 if os.geteuid() == 0 else 0)
    for place in (tree, tree / "_workflows", tree / "_workflows" / "a.yaml"):
        done = cli_of_ordinary_user("check", str(place))
        assert (done.returncode, done.stdout) == (2, "")
        assert str(tree / "_workflows") in done.stderr
        assert "Traceback" not in done.stderr
    assert cli_of_ordinary_user("check", str(tree)).stderr == (
        f"arkqueue: {tree / '_workflows'}: cannot be read (Permission denied). Correct its permissions.\n"
    )
    (tree / "_workflows").chmod(0o700)


def test_lists_in_files_are_judged_where_they_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "_workflows"
    folder.mkdir()
    lists = ("v.txt", "gone.txt", "folder.txt", "link.txt")
    tasks = [f"- {{name: t{n}, command: x, foreach: {{file: {name}}}}}" for n, name in enumerate(lists)]
    (folder / "a.yaml").write_text("\n".join(tasks))
    (tmp_path / "v.txt").write_text("a\nb\na\n")
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "link.txt").symlink_to("v.txt")
    done = run_cli("check", str(tmp_path))
    assert done.code == 1
    assert [line.rpartition(": ")[2].partition(";")[0] for line in done.lines] == [
        "there is no such file at this revision",
        "this is a folder",
        "this is a symbolic link, and links are not followed",
        "the key 'a' is also that of the item in line 1",
    ]
    assert done.lines[-1].startswith(f"{tmp_path}/v.txt:3:1: ")
    for here, path, named in (
        (tmp_path, None, "v.txt"),
        (tmp_path.parent, tmp_path.name, f"{tmp_path.name}/v.txt"),
        (folder, ".", "../v.txt"),
    ):
        monkeypatch.chdir(here)
        assert run_cli("check", *([path] if path else [])).lines[-1].startswith(f"{named}:3:1: ")


def test_names_of_files_forge_no_lines(tree: Path) -> None:
    (tree / "_workflows" / "w\n\narkqueue: to go on, run this\n#.yaml").write_text("- {name: a, comand: x}\n")
    done = run_cli("check", str(tree))
    assert done.code == 1
    assert not any(line.startswith("arkqueue: to go on") for line in done.lines)
    assert any("w\\n\\narkqueue: to go on, run this\\n#.yaml:1:" in line for line in done.lines)
