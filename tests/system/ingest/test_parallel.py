"""Requests for the files of a job go out side by side: the server here answers none before it has
several.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

AT_ONCE = 4


@pytest.fixture
def address() -> Iterator[str]:
    """A content server that answers as soon as so many requests are there."""
    gate = Barrier(AT_ONCE, timeout=30)

    class Together(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            gate.wait()
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(b"hello")

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Together) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_files_are_estimated_and_downloaded_side_by_side(
    tools: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings.json").write_text(
        json.dumps({"working_storage": {"reservations": str(tmp_path / "reserved")}})
    )
    for name, value in (
        ("INGEST_SETTINGS", tmp_path / "settings.json"),
        ("ARKQUEUE_SCRATCH", tmp_path),
        ("ARKQUEUE_ARCHIVE", "demo"),
        ("ARKQUEUE_OUTPUT", tmp_path / "output"),
        ("ARKQUEUE_ITEM", json.dumps({"job_id": "b.0001", "priority": 50})),
    ):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(tools.estimating, "priority", lambda *_: 50)
    names = [str(number) for number in range(2 * AT_ONCE)]
    (tmp_path / "files.json").write_text(json.dumps([{"url": f"{address}/{name}", "name": name} for name in names]))
    tools.estimating.main()
    assert json.loads((tmp_path / "estimate.json").read_text()) == {"space_needed": 40, "is_known": True}
    tools.downloading.main()
    assert [file["name"] for file in json.loads((tmp_path / "content.json").read_text())] == names
