"""A request is assembled: the files of the object in a zip, which lies at the request's URL once it is whole."""

from __future__ import annotations

import time
import zipfile
from pathlib import Path

from job import Failed, ask, end, inputs, opened, output, pieces, service, settings
from request import REQUEST


def main() -> None:
    begin, content = time.monotonic(), 0
    known = inputs()["enqueue"]
    found = ask("GET", f"{service('storage')}/object/{REQUEST['delivery-node']}/{REQUEST['ark']}")
    if found is None:
        raise Failed(f"{REQUEST['ark']}: is on node {REQUEST['delivery-node']} no more")
    path = Path(settings()["access"]["folder"]) / f"{REQUEST['token']}.zip"
    draft = path.with_suffix(".part")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in found["files"]:
            with opened(file["url"]) as answer, zipped.open(file["name"], "w", force_zip64=True) as out:
                for piece in pieces(answer):
                    out.write(piece)
                    content += len(piece)
    draft.replace(path)
    output(
        pool=known["pool"],
        content=content,
        seconds=round(time.monotonic() - begin, 3),
        status="available",
        url=known["url"],
    )
    print(f"{REQUEST['token']}: {content:,} bytes are at {known['url']}")


if __name__ == "__main__":
    end(main)
