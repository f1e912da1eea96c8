"""The places from which the configuration comes: its file and the environment. `config.settings`
validates their values.

Commands that call a server need three values only. `client_settings` reads them without the models
of `config.settings`, whose import takes as long as all else that such a command does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkqueue.errors import ConfigurationError

FILE = "arkqueue.toml"
PREFIX = "ARKQUEUE_"
TOKEN = re.compile(r"[!-~]+")
"""Matches a token."""

OF_TASKS = {"ARCHIVE", "BRANCH", "REVISION", "NUMBER", "PREVIOUS", "BASE", "TASK", "RUN", "ATTEMPT", "TRIGGER"}
OF_TASKS |= {"AUTHOR", "MESSAGE", "CHANGES", "ITEM", "INPUTS", "OUTPUT", "SCRATCH", "ATTACHMENTS"}
"""The variables that arkqueue sets for tasks, without their prefix. They configure nothing."""
_OF_CLIENTS = {"HOME", "CONFIG", "SERVER", "TOKEN"}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a command that calls a server. ``server``: the address; None: that of the home
    folder's own server. ``token``: None: the first token in the home folder.
    """

    home: Path
    server: str | None
    token: str | None


def client_settings(
    environ: Mapping[str, str], file: Path | None, home: str | None, server: str | None
) -> ClientSettings | None:
    """The settings of a command that calls a server. None: other settings stand beside them, or one
    of them may be invalid. Then `Configuration.load` reads all of them, and reports each fault.

    ``file``, ``home``, ``server``: the options of the command line.
    """
    names = {name.removeprefix(PREFIX) for name in environ if name.startswith(PREFIX)}
    if environ.get("DOCKER_HOST") or not names <= OF_TASKS | _OF_CLIENTS:
        return None
    folder, path, is_required = places(environ, file, home)
    found = from_file(path, required=is_required)
    found |= {key: value for key in ("server", "token") if (value := environ.get(PREFIX + key.upper()))}
    if server is not None:
        found["server"] = server
    if not found.keys() <= {"server", "token"} or not all(
        isinstance(one, str) and one.isascii() for one in found.values()
    ):
        return None
    token = found.get("token")
    if token is not None and not TOKEN.fullmatch(token := token.strip()):
        return None
    return ClientSettings(folder.expanduser().absolute(), found.get("server"), token)


def places(environ: Mapping[str, str], file: Path | None, home: str | Path | None) -> tuple[Path, Path, bool]:
    """The home folder, the configuration file, and whether the file must exist. ``file``, ``home``: the
    options of the command line.
    """
    folder = Path(home or environ.get(PREFIX + "HOME") or _default_home(environ))
    asked_for = file or (Path(environ[PREFIX + "CONFIG"]) if environ.get(PREFIX + "CONFIG") else None)
    return folder, asked_for or folder.expanduser() / FILE, asked_for is not None


def _default_home(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):  # the specification says to ignore a relative path
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return Path(base) / "arkqueue"


def from_file(path: Path, *, required: bool) -> dict[str, Any]:
    """The values in the configuration file; none if it does not exist. Raises ConfigurationError if it
    cannot be read, or is ``required`` and does not exist.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        if not required:
            return {}
        raise ConfigurationError(str(path), "does not exist", "Correct --config or ARKQUEUE_CONFIG.") from error
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read: {error.strerror}", "Correct its permissions.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(path), f"is not UTF-8 (byte {error.start})", "Save it as UTF-8.") from error
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(str(path), f"is not TOML: {error}", "Correct it; see https://toml.io.") from error


def no_color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether people asked programs not to print colours (https://no-color.org)."""
    return bool((os.environ if environ is None else environ).get("NO_COLOR"))
