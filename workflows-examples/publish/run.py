"""A search page and a PDF of an archive's documents, published after each commit.

It makes an archive in a new folder, commits to it, and shows what happens: see README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from common import Example, Repository, example, main, need_repositories
from publish import pdf_image

from arkqueue.cli import trial
from arkqueue.cli.output import bold, say
from arkqueue.errors import ArkqueueError

HERE = Path(__file__).parent
PDF = "_workflows/pdf.yaml"
SPELLING = """\
- name: spelling
  checkout: [documents]
  command: grep -rn teh documents && exit 1 || echo no mistakes
"""
LONG = "\n\n".join(
    f"Day {day}. The water was high, and the heron stood where it had stood before." for day in range(3000)
)
"""So long that its PDF is not ready before the next commit."""


def configuration(folder: Path) -> str:
    """The folder in which containers leave their PDFs, granted to the archive as a mount."""
    (folder / "papers" / "builds").mkdir(parents=True)
    return f'[[mounts]]\nname = "builds"\nfolder = "{folder}/papers/builds"\narchives = ["papers"]\n'


def archive_files(papers: Path, *, in_container: bool) -> dict[str, str]:
    """The archive's files by their paths, with this machine's folders and user in place of those of the workflow files. ``papers``: the folder that stays."""
    inside = HERE / "archive"
    files = {
        str(path.relative_to(inside)): path.read_text("utf-8")
        for path in inside.rglob("*.*")
        if path.is_file() and path.suffix != ".pyc"
    }
    own = {"/srv/papers": str(papers), "/srv/venv": sys.prefix}
    if not in_container:
        files[PDF] = (HERE / "process" / "pdf.yaml").read_text("utf-8")
    else:
        # The container has the folder as /srv/papers.
        files[PDF] = files[PDF].replace("1000:1000", f"{os.getuid()}:{os.getgid()}")
    for path in files:
        if path.startswith("_workflows/") and not (in_container and path == PDF):
            for there, here in own.items():
                files[path] = files[path].replace(there, here)
    return files


def run(arguments: argparse.Namespace) -> None:
    need_repositories(is_git=arguments.git)
    in_container = pdf_image.is_there(arguments.base)
    with example("publish", arguments, configuration=configuration) as arkqueue:
        papers = arkqueue.repository("papers", is_git=arguments.git)
        tell(arkqueue, papers, in_container)


def tell(arkqueue: Example, papers: Repository, in_container: bool) -> None:
    """Commits, and what becomes of them."""
    site = arkqueue.folder / "papers" / "site"

    def commit(message: str, changes: Mapping[str, str | None]) -> str:
        papers.update()
        for path, text in changes.items():
            file = papers.work / path
            if text is None:
                file.unlink()
            else:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, "utf-8")
        revision = papers.commit(message)
        name = trial.wait(lambda: run_of(arkqueue, revision), f"the run of {revision}")
        say(f"\n{bold(name)}: {message}")
        return name

    (papers.work / "README").write_text("An archive of papers.\n", "utf-8")
    papers.commit("Begin an archive")
    arkqueue.add("papers", papers)
    files = archive_files(arkqueue.folder / "papers", in_container=in_container)
    first = commit("Add documents, and what publishes them", {**files, "_workflows/spelling.yaml": SPELLING})
    state = arkqueue.settled(first)["state"]
    arkqueue("show", first)
    if state != "completed":
        raise ArkqueueError(first, f"is {state}", f"Look at the log of the task that failed: arkqueue show {first}")
    say(f"\nPublished together, by one rename:\n  {site}/index.html\n  {site}/papers.pdf")

    back = next_run(arkqueue, first)
    arkqueue.settled(back)
    say(
        f"\nThe task {bold('contents')} has committed CONTENTS.md. That is {back}, and it changes no document, so it ends there:"
    )
    arkqueue("show", back)

    long = commit("Add a paper that takes long to set", {"documents/long.md": f"# The long year\n\n{LONG}\n"})
    trial.wait(lambda: state_of(arkqueue, long, "build-PDF") == "running", f"the PDF of {long}")
    short = commit(
        "Shorten the paper, and remove the spelling check",
        {"documents/long.md": "# The short year\n\nThe heron stood.\n", "_workflows/spelling.yaml": None},
    )
    arkqueue.settled(short)
    say(f"\nThe index followed at once. The PDF of {long} was superseded by that of {short}:")
    arkqueue("show", long)
    arkqueue("logs", f"{short}/publish")

    number = first.partition("@")[2]
    say("\nAn older revision never replaces a newer one, not even by force:")
    again = ["build-PDF", "publish"]
    older = arkqueue("trigger", "papers", *again, "--revision", number, "--force", "--wait", code=1).strip()
    arkqueue("logs", f"{older}/publish")

    say("\nThe nightly check, now and not at half past three: the index equals one that is made anew")
    night = arkqueue("trigger", "papers", "nightly-check", "--wait").strip()
    arkqueue("logs", f"{night}/nightly-check")

    say(f"\nThe workflow file of the spelling check is gone from the archive. What ran at {first} is not:")
    for verb in ("show", "logs", "explain"):
        arkqueue(verb, f"{first}/spelling")
    arkqueue.stay(
        ("watch", "watch runs as they go, while you change something in papers-work and commit"),
        (f"explain {long}/build-PDF", "why that PDF was given up"),
        (f"graph {long} {short}", "what waited for what"),
        ("archive show papers", "when the nightly check is next"),
    )


def run_of(arkqueue: Example, revision: str) -> str | None:
    """The name of the run of a commit, as soon as it is planned."""
    runs = arkqueue.client.get("/runs", archive="papers", limit=100)["runs"]
    return next((str(run["full_name"]) for run in runs if run["revision"] == revision), None)


def next_run(arkqueue: Example, name: str) -> str:
    """The run of the revision after that of a run, as soon as it is planned."""
    following = f"papers@{int(name.partition('@')[2]) + 1}"
    trial.wait(lambda: arkqueue.run(following), following)
    return following


def state_of(arkqueue: Example, run: str, task: str) -> str | None:
    shown = arkqueue.run(run)
    return next((str(one["state"]) for one in shown["tasks"] if one["name"] == task), None) if shown else None


if __name__ == "__main__":
    main(
        run,
        __doc__,
        ("--base", {"help": "the image to build on: any Debian or Ubuntu that the engine has or can fetch"}),
    )
