"""Warns of secrets in the configuration that everybody on this host can read."""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path

from arkqueue.config.settings import Configuration
from arkqueue.config_sources import FILE, PREFIX, from_file
from arkqueue.names import without_password


def readable_secrets(configuration: Configuration, file: Path | None = None) -> list[str]:
    """Warnings about secrets in the configuration that everybody on this host may read. ``file``:
    the configuration file that the user named.
    """
    asked_for = os.environ.get(PREFIX + "CONFIG")
    path = file or Path(asked_for or configuration.home / FILE).expanduser()
    found = from_file(path, required=False)
    names = ["token"] if "token" in found else []
    if re.search(r"\bpassword\s*=|://[^/@]*:[^/@]+@", str(found.get("database", ""))):
        names.append("the database's password")
    entries = [entry for entry in found.get("credentials", ()) if isinstance(entry, dict)]
    names += [f"the password for {without_password(str(entry.get('url')))}" for entry in entries if "password" in entry]
    files = [(path, name) for name in names]
    files += [
        (c.password_file, f"the password for {without_password(c.url)}")
        for c in configuration.credentials
        if c.password_file
    ]
    return [
        f"{at}: everybody on this host may read {name}. Close the file: chmod o-r {shlex.quote(str(at))}"
        for at, name in files
        if _is_readable_by_all(at)
    ]


def _is_readable_by_all(path: Path) -> bool:
    """Whether everybody may read a file, and enter each folder above it."""
    try:
        real = path.resolve()
        return bool(real.stat().st_mode & stat.S_IROTH) and all(f.stat().st_mode & stat.S_IXOTH for f in real.parents)
    except OSError:
        return False
