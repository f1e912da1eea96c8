"""``arkqueue check``: the faults of workflow files, on this computer or of a revision on the
server.

Local files are read here and never sent anywhere, so no server is needed for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from arkqueue.cli.options import as_json, client
from arkqueue.cli.output import fault_line, print_json, say
from arkqueue.errors import Invalid
from arkqueue.text import visible

if TYPE_CHECKING:
    from arkqueue.model import SourceFile


@click.command(
    epilog="Without PATH, the folder _workflows here or in a folder above is checked. A single file is checked by itself, so tasks that it names must be in it."
)
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option(
    "--revision", metavar="ARCHIVE@REV", help="Check a revision that the server knows, instead of files here."
)
@click.option("--server", metavar="URL", help="With --revision: where the server is.")
@as_json
@click.pass_context
def check(ctx: click.Context, path: Path | None, revision: str | None, server: str | None, as_json: bool) -> None:
    """Find the faults of workflow files; exit with 1 if there are any."""
    if revision is not None and path is not None:
        raise click.UsageError("Give PATH or --revision, not both.", ctx)
    found = _of_revision(ctx, revision, server) if revision is not None else _of_files(_place(path))
    if as_json:
        print_json(found)
    else:
        for fault in found["faults"]:
            say(fault_line(fault))
        if not found["faults"]:
            count = len(found["tasks"])
            say(f"no faults: {visible(found['place'])} ({count} task{'s' if count != 1 else ''})")
        for sentence in found.get("not_followed", ()):
            say(f"note: {visible(sentence)}")
    if found["faults"]:
        sys.exit(1)


def _place(path: Path | None) -> Path:
    """The default path to check: the nearest ``_workflows``, from the current folder upwards."""
    from arkqueue.repository import WORKFLOWS

    if path is not None:
        return path
    here = Path.cwd()
    found = next((folder / WORKFLOWS for folder in (here, *here.parents) if os.path.lexists(folder / WORKFLOWS)), None)
    if found is None:
        raise Invalid(str(here), f"no folder {WORKFLOWS} here or above", "Name one: arkqueue check PATH")
    return Path(os.path.relpath(found))


def _of_files(place: Path) -> dict[str, Any]:
    from arkqueue.workflow.parsing import parse

    try:
        sources = _sources(place)
    except OSError as error:
        raise _unreadable(error.filename or str(place), error) from error
    root = _root(sources)
    workflow = parse(sources, partial(_list_file, root) if root else None)
    return {
        "place": str(place),
        "tasks": [task.name for task in workflow.tasks],
        "faults": [
            asdict(
                replace(fault, path=_from_here(place, root, fault.path))
                if fault.path in workflow.list_files and root
                else fault
            )
            for fault in workflow.faults
        ],
        "not_followed": list(_not_followed(place)),
    }


def _root(sources: Sequence[SourceFile]) -> Path | None:
    """The folder where the paths of lists begin: the parent of the folder of workflow files. None:
    there is none.
    """
    from arkqueue.repository import WORKFLOWS

    folder = Path(sources[0].path).absolute().parent if sources else None
    return folder.parent if folder is not None and folder.name == WORKFLOWS else None


def _from_here(place: Path, root: Path, path: str) -> str:
    """The path of a file of the archive, written like those of the workflow files beside it:
    relative, or from the root of this computer.
    """
    file = root / path
    return str(file) if place.is_absolute() else os.path.relpath(file)


def _list_file(root: Path, path: str) -> SourceFile:
    """A file that holds a list."""
    from arkqueue.model import LONGEST_LIST, SourceFile
    from arkqueue.repository import FOLDER_FOR_LIST, LINKED_LIST, LONG_LIST, NO_LIST

    file = root / path
    if any(one.is_symlink() for one in (file, *file.parents) if one.is_relative_to(root) and one != root):
        return SourceFile(path, fault=LINKED_LIST)
    if not file.is_file():
        return SourceFile(path, fault=FOLDER_FOR_LIST if file.is_dir() else NO_LIST)
    try:
        if file.stat().st_size > LONGEST_LIST:
            return SourceFile(path, fault=LONG_LIST)
        return SourceFile(path, file.read_bytes())
    except OSError as error:
        raise _unreadable(str(file), error) from error


def _not_followed(place: Path) -> tuple[str, ...]:
    """The references that the files of a task will lack, if the place is in a working copy."""
    from arkqueue.repository.checked_out import not_followed

    here = place.absolute()
    top = next(
        (folder for folder in (here, *here.parents) if (folder / ".git").exists() or (folder / ".svn").is_dir()), None
    )
    return not_followed(top) if top is not None else ()


def _sources(place: Path) -> list[SourceFile]:
    """The workflow files at a place: an archive's root, a folder of them, or one file."""
    from arkqueue.model import SourceFile
    from arkqueue.repository import WORKFLOWS, is_workflow_file, linked, no_folder
    from arkqueue.repository.limits import too_many_workflows

    named = place if place.name == WORKFLOWS else place / WORKFLOWS
    if named.is_symlink():
        return [linked(str(named))]
    if named.is_file():
        return [no_folder(str(named))]
    if not place.exists():
        raise Invalid(
            str(place), "does not exist", "Name a folder with _workflows, a folder of workflow files, or a file."
        )
    if not place.is_dir():
        return [_source(place)]
    folder = place / WORKFLOWS if (place / WORKFLOWS).is_dir() else place
    files = sorted(f for f in folder.iterdir() if is_workflow_file(f.name) and (f.is_file() or f.is_symlink()))
    if not files and folder is place and place.name != WORKFLOWS:
        fault = f"holds no folder {WORKFLOWS} and no workflow file (*.yaml, *.yml, *.json)"
        raise Invalid(str(place), fault, "Name another folder, or a file.")
    if fault := too_many_workflows([file.lstat().st_size for file in files]):
        return [SourceFile(str(folder), fault=fault)]
    return [linked(str(file)) if file.is_symlink() else _source(file) for file in files]


def _source(file: Path) -> SourceFile:
    from arkqueue.model import SourceFile
    from arkqueue.repository import TOO_LONG

    try:
        with file.open("rb") as opened:
            # Only as many bytes as tell the parser that the file is too long; it may have 2 GiB.
            return SourceFile(str(file), opened.read(len(TOO_LONG)))
    except OSError as error:
        raise _unreadable(str(file), error) from error


def _unreadable(path: str, error: OSError) -> Invalid:
    return Invalid(path, f"cannot be read ({error.strerror})", "Correct its permissions.")


def _of_revision(ctx: click.Context, revision: str, server: str | None) -> dict[str, Any]:
    from arkqueue.cli.find import find_run
    from arkqueue.names import parse_name

    # A manual run may have only some of the tasks. The commit run has all of them, or all faults.
    asked = client(ctx, server)
    run = find_run(asked, str(replace(parse_name(revision), run=1)))
    tasks = [task["name"] for task in run["tasks"] if task["kind"] == "ordinary"]
    found = asked.get(f"/runs/{run['id']}/not-followed")
    # The faults are those in the ledger, and are reported even if the repository does not answer.
    notes = [f"what is not followed cannot be told: {found['fault']}"] if found["fault"] else found["notes"]
    return {"place": run["full_name"], "tasks": tasks, "faults": run["faults"], "not_followed": notes}
