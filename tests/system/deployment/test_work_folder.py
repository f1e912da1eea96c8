"""A worker whose work folder the engine does not see under the same path: it says so at its start,
and does not start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ELSEWHERE = 'mount -t tmpfs none "$1"; shift; exec "$@"'


@pytest.mark.full
@pytest.mark.usefixtures("root")
def test_worker_with_a_folder_that_only_it_has_does_not_start(pg_uri: str, engine_url: str, tmp_path: Path) -> None:
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ARKQUEUE_")},
        "ARKQUEUE_DATABASE": pg_uri,
        "ARKQUEUE_DOCKER_HOST": engine_url,
    }
    worker = [sys.executable, "-m", "arkqueue", "--home", str(tmp_path), "worker"]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", ELSEWHERE, "sh", str(tmp_path), *worker],
        env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert f"folder {tmp_path}: the engine at {engine_url} does not see it under the same path" in said
    assert "Mount the engine's folder at the same absolute path where the task manager runs" in said
    assert "Traceback" not in said
