"""Make one PDF of all documents, with a title page and an anchor for each."""

from __future__ import annotations

import html
import json
import os
from pathlib import Path

import documents
import markdown
import weasyprint

STYLE = """
@page { size: A4; margin: 25mm 20mm; @bottom-center { content: counter(page); } }
body { font: 11pt/1.4 "DejaVu Serif", serif; }
section { break-before: page; }
.path { color: #666; font-size: 9pt; }
"""


IMAGES = ("image_link", "image_reference", "short_image_ref")


def as_html(text: str) -> str:
    """Markdown as HTML. Elements of HTML and images are shown as they are written: a committer could have an image read any file or server that the task reaches."""
    reader = markdown.Markdown()
    reader.preprocessors.deregister("html_block")
    for pattern in ("html", *IMAGES):
        reader.inlinePatterns.deregister(pattern)
    return reader.convert(text)


def main() -> None:
    number, revision = os.environ["ARKQUEUE_NUMBER"], os.environ["ARKQUEUE_REVISION"]
    parts = [f"<h1>Papers</h1><p>Revision {html.escape(number)} ({html.escape(revision)})</p>"]
    for found in documents.everything():
        path = html.escape(found.path.decode("utf-8", "replace"))
        parts.append(f'<section id="{found.anchor}"><p class="path">{path}</p>{as_html(found.body)}</section>')
    head = f"<title>Papers, revision {html.escape(number)}</title><style>{STYLE}</style>"
    print(f"{len(parts) - 1} documents", flush=True)
    document = weasyprint.HTML(string=f"<!doctype html><html lang=en>{head}{''.join(parts)}")
    made = document.render()
    folder = Path(os.environ["PAPERS"], "builds")
    part = folder / f".{number}.pdf.{os.environ['ARKQUEUE_RUN']}"
    made.write_pdf(part)
    part.rename(folder / f"{number}.pdf")
    output = {"file": f"{number}.pdf", "number": int(number), "pages": len(made.pages)}
    Path(os.environ["ARKQUEUE_OUTPUT"]).write_text(json.dumps(output), "utf-8")
    print(f"{number}.pdf: {len(made.pages)} pages")


if __name__ == "__main__":
    main()
