"""The recording of `make demo` that README shows: ``python -m tests.recording FILE``, or ``make recording``.

The demo runs in a terminal of its own. An animated SVG without a script shows what the terminal showed, and a browser fetches nothing else for it.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PATIENCE: Final = 300
"""Seconds until the demo has to be over."""
OPTIONS: Final = ("--screen-geometry", "114x42", "--min-frame-duration", "100", "--max-frame-duration", "2500", "--loop-delay", "5000", "--template", "window_frame")  # fmt: skip
"""Long pauses are cut short, and what changes within a tenth of a second is one picture."""


COMMAND: Final = "echo '$ make demo'; exec make --no-print-directory demo"


def record(file: Path, command: str = COMMAND) -> None:
    """Run a command in a terminal, and draw what it shows into a file. The folder that the demo leaves behind is removed."""
    # The demo ends by itself where nobody can press Ctrl-C; the recorder's own input has to stay open meanwhile.
    own, kept = os.pipe()
    with tempfile.TemporaryDirectory(prefix="demo-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        own_names = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        environment = {**own_names, "TMPDIR": folder, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        run = [Path(sys.executable).with_name("termtosvg"), file.absolute(), *OPTIONS]
        shell = f"sh -c {shlex.quote(f'exec </dev/null; {command}')}"
        try:
            subprocess.run(
                [*run, "--command", shell], cwd=ROOT, env=environment, stdin=own, check=True, timeout=PATIENCE
            )
        finally:
            os.close(own)
            os.close(kept)
    lines = file.read_text(encoding="utf-8").splitlines()
    file.write_text("".join(line.rstrip() + "\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "demo.svg"))
