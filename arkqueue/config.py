"""Configuration: read once, validated whole, frozen, passed down. No other module reads the environment.

Four places, the later ones win: the defaults; ``arkqueue.toml`` in the home folder, or the file that ``--config`` or ``ARKQUEUE_CONFIG``
names; ``ARKQUEUE_<KEY>`` for every key that has one value; the options of the command line. All faults are reported at once.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from arkqueue.errors import ConfigurationError

FILE = "arkqueue.toml"
PREFIX = "ARKQUEUE_"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def duration(value: Any) -> Any:
    """Seconds from ``90s``, ``30m``, ``2h`` or ``1h30m``."""
    if isinstance(value, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)", value.strip())
        if parts and "".join(number + unit for number, unit in parts) == value.strip():
            return sum(float(number) * _UNITS[unit] for number, unit in parts)
    raise PydanticCustomError("duration", "is no duration; write it like 90s, 30m or 2h")


def size(value: Any) -> Any:
    """Bytes from ``64KiB``, ``15MiB`` or ``1GiB``."""
    if isinstance(value, str) and (match := re.fullmatch(r"(\d+)\s*([kmg]ib|b)", value.strip(), re.IGNORECASE)):
        return int(match[1]) * _SIZES[match[2].lower()]
    raise PydanticCustomError("size", "is no size; write it like 64KiB, 15MiB or 1GiB")


Duration = Annotated[float, BeforeValidator(duration), Field(gt=0)]
Size = Annotated[int, BeforeValidator(size), Field(gt=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=False)


class Credentials(_Strict):
    """How to sign in to every repository whose URL begins with ``url``."""

    url: str = Field(min_length=1)
    username: str = ""
    password: str | None = Field(default=None, repr=False)
    password_file: Path | None = None

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise PydanticCustomError("password", "give password or password_file, not both")
        return self

    def secret(self) -> str | None:
        """The password, read from its file now so that it can be changed without a restart."""
        if self.password_file is None:
            return self.password
        try:
            return self.password_file.read_text("utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            fault = f"the password for {self.url} cannot be read: {error}"
            raise ConfigurationError(str(self.password_file), fault, "Correct password_file.") from error


class Configuration(_Strict):
    """All that an installation can set. Times are seconds, sizes bytes."""

    home: Path
    """What this host keeps: the embedded database, workspaces, tokens, its host id."""
    database: str | None = Field(default=None, repr=False)
    """The connection string of a PostgreSQL; None: the embedded one."""
    database_pooler: bool = False
    """``database`` leads through pgbouncer in transaction mode."""
    database_direct: str | None = Field(default=None, repr=False)
    """With a pooler: the connection string past it, for LISTEN and migrations."""
    listen: str = "127.0.0.1:8417"
    """Where the API listens."""
    server: str | None = None
    """Where the command line finds the API; None: where the home folder says that its own server listens."""
    token: str | None = Field(default=None, repr=False)
    """The command line's token; None: the first token in the home folder."""
    slots: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1, le=10_000)
    """How many tasks a task manager runs at once."""
    labels: tuple[str, ...] = ()
    lease: Duration = 90.0
    renew: Duration = 10.0
    sweep: Duration = 60.0
    poll: Duration = 1.0
    adopt_within: Duration = 300.0
    """How long an attempt that can outlive its task manager stays reserved for its host (design 6)."""
    log_head: Size = 1 << 20
    log_tail: Size = 15 << 20
    """What is kept of an attempt's log: its beginning and its end."""
    output_limit: Size = 1 << 20
    """The longest ``OUTPUT`` file that a task may write."""
    credentials: tuple[Credentials, ...] = ()

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\s\[\]]+):(\d{1,5})", value)
        if not match or int(match[2]) > 65535:
            raise PydanticCustomError("listen", "is no address; write it like 127.0.0.1:8417 or [::1]:8417")
        return value

    @field_validator("home")
    @classmethod
    def _is_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("labels")
    @classmethod
    def _later(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value:
            raise PydanticCustomError("labels", "is not supported yet")
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.renew * 3 > self.lease:
            raise PydanticCustomError(
                "renew", "renew must be at most a third of lease, or one lost renewal ends healthy tasks"
            )
        if self.poll > self.renew:
            raise PydanticCustomError("poll", "poll must not be longer than renew")
        if self.database_direct is not None and not self.database_pooler:
            raise PydanticCustomError("direct", "database_direct is for database_pooler = true only")
        return self

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """0: any free one."""
        return int(self.listen.rpartition(":")[2])

    def credentials_for(self, url: str) -> Credentials | None:
        """The entry with the longest matching prefix; a prefix ends at a slash of the URL or at its end."""
        fitting = [entry for entry in self.credentials if (url + "/").startswith(entry.url.rstrip("/") + "/")]
        return max(fitting, key=lambda entry: len(entry.url), default=None)

    @classmethod
    def load(
        cls, environ: Mapping[str, str] | None = None, file: Path | None = None, **overrides: Any
    ) -> Configuration:
        """Read everything; raises ConfigurationError with every fault.

        ``environ`` is the process's own unless a test gives another; an override of None was not given.
        """
        environ = os.environ if environ is None else environ
        overrides = {key: value for key, value in overrides.items() if value is not None}
        home = Path(overrides.get("home") or environ.get(PREFIX + "HOME") or _default_home(environ))
        asked_for = file or (Path(environ[PREFIX + "CONFIG"]) if environ.get(PREFIX + "CONFIG") else None)
        path = asked_for or home.expanduser() / FILE

        faults: list[str] = []
        sources: dict[str, str] = {}
        values: dict[str, Any] = {"home": home}
        for where, found in (
            (str(path), _from_file(path, required=asked_for is not None)),
            ("environment", _from_environment(environ, faults)),
            ("command line", overrides),
        ):
            values |= found
            sources |= dict.fromkeys(found, where)
        try:
            configuration = cls.model_validate(values)
        except ValidationError as error:
            faults += [_fault(detail, sources) for detail in error.errors(include_url=False, include_input=False)]
        if faults:
            raise ConfigurationError("the configuration", "; ".join(faults), "Correct it and start again.")
        return configuration


def _default_home(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(base):  # the specification says to ignore a relative one
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".local", "share")
    return Path(base) / "arkqueue"


def _from_file(path: Path, *, required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        if not required:
            return {}
        raise ConfigurationError(str(path), "does not exist", "Correct --config or ARKQUEUE_CONFIG.") from error
    except OSError as error:
        raise ConfigurationError(str(path), f"cannot be read: {error.strerror}", "Correct its permissions.") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(str(path), f"is not UTF-8 (byte {error.start})", "Save it as UTF-8.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(str(path), f"is not TOML: {error}", "Correct it; see https://toml.io.") from error


def _plain() -> list[str]:
    """The keys that have one value and so can stand in the environment."""
    return [name for name in Configuration.model_fields if name not in ("credentials", "labels")]


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, Any]:
    names = {PREFIX + name.upper(): name for name in _plain()}
    found: dict[str, Any] = {}
    for variable, value in environ.items():
        if variable in names:
            if value:
                found[names[variable]] = value
        elif (
            variable.startswith(PREFIX)
            and (near := _nearest(variable, [*names, PREFIX + "CONFIG"]))
            and near != variable
        ):
            # Others may stand there by right, as the variables of a task do; only a near miss is a mistake.
            faults.append(f"environment: {variable} is unknown (did you mean {near}?)")
    return found


_OF_TASKS = {"ARCHIVE", "BRANCH", "REVISION", "NUMBER", "PREVIOUS", "BASE", "TASK", "RUN", "ATTEMPT", "TRIGGER"}
_OF_TASKS |= {"ITEM", "INPUTS", "OUTPUT"}


def _nearest(word: str, names: list[str]) -> str:
    """The name that was meant, or nothing; of variables, what a task is given is never a miss."""
    if word.removeprefix(PREFIX) in _OF_TASKS:
        return ""
    return next(
        iter(difflib.get_close_matches(word, names, n=1, cutoff=0.6 if not word.startswith(PREFIX) else 0.88)), ""
    )


def _fault(detail: Any, sources: dict[str, str]) -> str:
    """One of pydantic's findings, with the place, the key and what was meant."""
    place = detail["loc"]
    key = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    where = sources.get(str(place[0]), "defaults") if place else ""
    name = PREFIX + key.upper() if where == "environment" else key
    head = f"{where}: {name} " if place else ""
    if detail["type"] == "extra_forbidden":
        model = Credentials if place[0] == "credentials" else Configuration
        near = _nearest(str(place[-1]), list(model.model_fields))
        return f"{head}is unknown" + (f" (did you mean {near}?)" if near else "")
    message = str(detail["msg"])
    return head + (message if message.startswith(("is ", "give ")) or not head else message[0].lower() + message[1:])


def no_color(environ: Mapping[str, str] | None = None) -> bool:
    """Whether people asked programs not to print colours (https://no-color.org)."""
    return bool((os.environ if environ is None else environ).get("NO_COLOR"))
