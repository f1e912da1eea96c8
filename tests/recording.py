"""Records the `make demo` that README shows: ``python -m tests.recording FILE``, or ``make
recording``.

The demo runs in its own terminal. The result is an animated SVG without a script, for which a
browser fetches no other file.
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
"""The most seconds that the demo may take."""
OPTIONS: Final = ("--screen-geometry", "114x42", "--min-frame-duration", "100", "--max-frame-duration", "2500", "--loop-delay", "5000", "--template", "window_frame")  # fmt: skip
"""The options shorten long pauses, and draw all changes within a tenth of a second as one frame."""


COMMAND: Final = "echo '$ make demo'; exec make --no-print-directory demo"


def record(file: Path, command: str = COMMAND) -> None:
    """Runs a command in a terminal and draws the output into a file. Removes the folder that the
    demo leaves behind.
    """
    # The demo ends by itself if its input has no keyboard for Ctrl-C. The recorder's own input has
    # to stay open meanwhile.
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
