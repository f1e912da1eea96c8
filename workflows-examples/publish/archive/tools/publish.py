"""Publish the search page and the PDF of one revision together, by one rename; an older revision never replaces a newer one.

``site`` is a link to a folder of ``releases``. A reader who opens ``site`` once sees the page and the PDF of one revision. The release before stays for those who
have opened it already.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

EX_DATAERR = 65
KEPT = 2
"""How many releases stay, the new one with them."""


def the_number(page: dict[str, Any], pdf: dict[str, Any]) -> int:
    """The revision whose page and PDF these are."""
    if page["number"] != pdf["number"]:
        sys.exit(
            f"the page is of revision {page['number']} and the PDF of {pdf['number']}: "
            "run the tasks search-page and build-PDF of one revision with this one"
        )
    return int(page["number"])


def published(site: Path) -> int:
    """The number of the revision that is published; 0: none."""
    try:
        return int(json.loads((site / "release.json").read_text("utf-8"))["number"])
    except FileNotFoundError:
        return 0


def main() -> None:
    inputs = json.loads(Path(os.environ["ARKQUEUE_INPUTS"]).read_text("utf-8"))
    page, pdf = inputs["search-page"], inputs["build-PDF"]
    number = the_number(page, pdf)
    folder = Path(os.environ["PAPERS"])
    builds, releases, site = folder / "builds", folder / "releases", folder / "site"
    releases.mkdir(exist_ok=True)
    with (releases / ".lock").open("w") as lock:
        # Whatever the edges of the workflow say, and whoever runs this by hand beside it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        there = published(site)
        if there > number:
            print(
                f"revision {there} is published, and an older one, {number}, never replaces it. "
                "To go back, commit the older texts as a new revision.",
                file=sys.stderr,
            )
            sys.exit(EX_DATAERR)
        made = releases / str(number)
        if there == number:
            print(f"revision {number} is published already")
            return
        new = releases / f".{number}"
        for half_made in (new, made):
            shutil.rmtree(half_made, ignore_errors=True)
        new.mkdir()
        for name, file in (("index.html", page["file"]), ("papers.pdf", pdf["file"])):
            shutil.copyfile(builds / file, new / name)
        release = {"number": number, "revision": os.environ["ARKQUEUE_REVISION"], "pages": pdf["pages"]}
        (new / "release.json").write_text(json.dumps(release), "utf-8")
        new.rename(made)
        link = releases / ".site"
        link.unlink(missing_ok=True)
        link.symlink_to(Path("releases", str(number)))
        link.rename(site)
        tidy(builds, releases, number)
    print(f"revision {number} is published: {pdf['pages']} pages")


def tidy(builds: Path, releases: Path, number: int) -> None:
    """Remove what was built for revisions up to this one, and all releases but the last ones."""
    for file in builds.iterdir():
        # What is being written begins with a dot.
        if int(file.name.lstrip(".").split(".")[0]) <= number:
            file.unlink()
    for old in sorted((path for path in releases.iterdir() if path.name.isdigit()), key=lambda p: int(p.name))[:-KEPT]:
        shutil.rmtree(old)


if __name__ == "__main__":
    main()
