"""``make example-ingest``: what it shows is what it does, and what it leaves behind can be looked
at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.end_to_end.installation import ROOT, environment, processes_of

SUBJECTS = """\
Batch bid-file is queued: 1 object
Batch bid-file completed: 1 of 1 objects
Batch bid-object is queued: 1 object
Batch bid-object completed: 1 of 1 objects
Batch bid-books is queued: 3 objects
Batch bid-books failed: 2 of 3 objects
Batch bid-books update: completed: 3 of 3 objects
Batch bid-held is queued: 1 object
Batch bid-held completed: 1 of 1 objects
Batch bid-cut rejected
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kind", [pytest.param("--git", marks=pytest.mark.full), pytest.param("", marks=pytest.mark.long)]
)
def test_the_example_runs_and_leaves_its_archives_behind(tmp_path: Path, open_folder: Path, kind: str) -> None:
    home = open_folder / "example"
    done = subprocess.run(
        [sys.executable, ROOT / "workflows-examples" / "ingest" / "run.py", "--folder", home, *kind.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(PYTHONPATH=f"{ROOT / 'workflows-examples'}:{ROOT}", END_TO_END=str(home)),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "".join(f"{line}\n" for line in re.findall(r"^  Subject: (.*)", done.stdout, re.M)) == SUBJECTS
    assert "mrt:local_id" in done.stdout
    assert "the manifest is cut off" in done.stdout
    assert "status = available" in done.stdout
    assert processes_of(str(home)) == []
