"""What the programs of the access queue have in common: the request, and what arkqueue knows of earlier ones."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from job import settings

REQUEST: dict[str, Any] = json.loads(os.environ["ARKQUEUE_ITEM"])


def api(path: str) -> Any:
    """What the server of arkqueue says; `None` where it says nothing. A request does not fail because nobody knows when it will be ready."""
    known = settings()
    server, token = (Path(known[name]).read_text("ascii").strip() for name in ("url_file", "token_file"))
    asked = urllib.request.Request(f"{server}/api/v1{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None
