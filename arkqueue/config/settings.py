"""Configuration: read once, validated whole, frozen, passed down. No module reads the environment
but those of this package and ``config_sources``.

Four places, the later ones win: the defaults; ``arkqueue.toml`` in the home folder, or the file
that ``--config`` or ``ARKQUEUE_CONFIG`` names; ``ARKQUEUE_<KEY>`` for every key that has one value
(``ARKQUEUE_DOCKER_<KEY>`` for those of ``[docker]``); the options of the command line. All faults
are reported at once.
"""

from __future__ import annotations

import difflib
import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from arkqueue.config.containers import Docker, PersistentMount
from arkqueue.config.openid import OpenId, OpenIdGrant, OpenIdPerson
from arkqueue.config.receivers import Mail, Webhook, origin_of
from arkqueue.config.values import (
    PLAIN_WORDS,
    Duration,
    Items,
    LimitOrNone,
    Size,
    SizeOrNothing,
    Slots,
    Strict,
    is_address,
)
from arkqueue.config_sources import OF_TASKS, PREFIX, TOKEN, from_file, places
from arkqueue.errors import ConfigurationError
from arkqueue.model import LABEL, LONGEST_RENEWAL, MOST_ITEMS


class Credentials(Strict):
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


class Configuration(Strict):
    """All that an installation can set. Times are seconds, sizes bytes."""

    home: Path
    """The home folder of this host: the embedded database, workspaces, tokens, its host id."""
    database: str | None = Field(default=None, repr=False)
    """The connection string of a PostgreSQL; None: the embedded one."""
    database_pooler: bool = False
    """True if ``database`` is the address of a pgbouncer in transaction mode."""
    database_direct: str | None = Field(default=None, repr=False)
    """With a pooler: the connection string of PostgreSQL itself, for LISTEN and migrations."""
    listen: str = "127.0.0.1:8417"
    """The address at which the API listens."""
    hosts: tuple[str, ...] = Field(default=(), max_length=100)
    """Names by which browsers reach the pages, in small letters, beside ``localhost``, this machine's
    name and its addresses.
    """
    public: tuple[str, ...] = Field(default=(), max_length=1000)
    """Archives whose pages can be read without signing in by everybody who reaches the server."""
    server: str | None = None
    """The address of the API for the command line; None: that of the home folder's own server."""
    token: str | None = Field(default=None, repr=False)
    """The command line's token; None: the first token in the home folder."""
    slots: Slots = Field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """The most tasks that a task manager runs at once."""
    labels: tuple[str, ...] = Field(default=(), max_length=100)
    """The labels of this task manager, for which tasks may ask (`runs_on`)."""
    lease: Duration = 90.0
    renew: Duration = 10.0
    sweep: Duration = 60.0
    poll: Duration = 1.0
    adopt_within: Duration = 300.0
    """Seconds for which an attempt that can outlive its task manager stays reserved for its host
    after its lease (design 6).
    """
    log_head: Size = 1 << 20
    log_tail: Size = 15 << 20
    """The bytes of the beginning and of the end of an attempt's log that are kept."""
    output_limit: Size = 1 << 20
    """The most bytes of the ``OUTPUT`` file that a task writes."""
    workspace_pool: Size = 20 << 30
    """The most bytes of the trees that are kept for later workspaces."""
    min_free: SizeOrNothing = 1 << 30
    """A task manager claims no tasks while the disk of its home folder, workspaces or scratch
    folders has fewer free bytes; 0: it always claims.
    """
    scratch_folder: Path | None = None
    """The folder of scratch folders; None: it is in the home folder."""
    scratch_shared: bool = False
    """True if several task managers share ``scratch_folder``, so that tasks with a scratch folder
    in it run on any of their hosts.
    """
    scratch_limit: SizeOrNothing = 100 << 30
    """A task manager makes no further scratch folder while they have this many bytes together
    (design 5.37); 0: it always makes one.
    """
    attachments_limit: Size = 30 << 30
    """The most bytes of all attachments of one submission (design 5.31)."""
    import_limit: LimitOrNone = 1000
    """If a scan finds more new revisions of a branch, all of their runs are held (design 5.22);
    None: they run.
    """
    items_limit: Items = MOST_ITEMS
    """The most items of a list of a workflow file; more are a fault (design 5.30)."""
    credentials: tuple[Credentials, ...] = ()
    public_url: str | None = None
    """The address of the pages in the links of notifications; None: the address at which the API
    listens.
    """
    webhooks: tuple[Webhook, ...] = ()
    """The hosts to which notifications may be posted."""
    mail: Mail | None = None
    """The mail server for notifications; None: none are mailed."""
    openid: OpenId | None = None
    """The provider with which persons sign in to the pages; None: they use tokens and links."""
    docker: Docker = Field(default_factory=lambda: Docker())
    mounts: tuple[PersistentMount, ...] = ()
    """The folders and volumes that tasks may use. If several have one name, an archive's tasks get
    the first one that is for the archive.
    """

    @field_validator("database", "database_direct")
    @classmethod
    def _is_not_empty(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise PydanticCustomError("database", "is empty; leave it out for the embedded PostgreSQL")
        return value

    @field_validator("token")
    @classmethod
    def _is_token(cls, value: str | None) -> str | None:
        if value is None:
            return None
        value = value.strip()  # the line end of a file
        if not TOKEN.fullmatch(value):
            raise PydanticCustomError("token", "is not a valid token: it is empty, or has a character that none has")
        return value

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if not is_address(value):
            raise PydanticCustomError("listen", "is not a valid address; write it like 127.0.0.1:8417 or [::1]:8417")
        return value

    @field_validator("hosts")
    @classmethod
    def _are_hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not (re.fullmatch(r"[A-Za-z0-9_.-]+", host) or _is_ipv6(host)):
                raise PydanticCustomError(
                    "hosts",
                    "holds {host}, which is not a valid name of a host; write it without scheme and port: queue.example.org",
                    {"host": repr(host)},
                )
        return tuple(host.strip("[]").lower() for host in value)

    @field_validator("public_url")
    @classmethod
    def _is_a_url(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"https?://[^\s/@]+(/[^\s?#]*)?", value):
            raise PydanticCustomError(
                "url", "is not a valid address of the pages; write it like https://queue.example.org"
            )
        return value and value.rstrip("/")

    @field_validator("home")
    @classmethod
    def _is_absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("scratch_folder")
    @classmethod
    def _is_a_folder(cls, value: Path | None) -> Path | None:
        if value is not None and (not value.is_absolute() or ".." in value.parts or os.path.realpath(value) == "/"):
            raise PydanticCustomError(
                "folder", "is not an absolute path of a folder; write it like /srv/arkqueue-scratch"
            )
        return value

    @field_validator("labels")
    @classmethod
    def _are_labels(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for label in value:
            if not re.fullmatch(LABEL, label):
                raise PydanticCustomError(
                    "labels",
                    "holds {label}, which is not a valid label; use letters, digits, '.', '_' and '-', at most 40, beginning with a letter or a digit",
                    {"label": repr(label)},
                )
        return tuple(sorted(set(value)))

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.renew > LONGEST_RENEWAL:
            raise PydanticCustomError(
                "renew",
                "renew must be at most {most} s: a task manager that says nothing for three times as long counts as gone",
                {"most": f"{LONGEST_RENEWAL:g}"},
            )
        if self.renew * 3 > self.lease:
            raise PydanticCustomError(
                "renew", "renew must be at most a third of lease, or one lost renewal ends healthy tasks"
            )
        if self.poll > self.renew:
            raise PydanticCustomError("poll", "poll must not be longer than renew")
        if self.database_direct is not None and not self.database_pooler:
            raise PydanticCustomError("direct", "database_direct is for database_pooler = true only")
        if self.openid is not None and self.public_url is None:
            raise PydanticCustomError(
                "openid",
                "openid needs public_url: the provider sends browsers back there, like https://queue.example.org",
            )
        if self.scratch_shared and self.scratch_folder is None:
            raise PydanticCustomError(
                "scratch", "scratch_shared is for a scratch_folder that several hosts see; give that folder"
            )
        return self

    @model_validator(mode="after")
    def _mounts_give_nothing_away(self) -> Self:
        """Refuse mounts of the engine's socket, with which a task is root on the host, and of the
        home folder, with which it has every token and password.
        """
        folders = [
            (f"mounts[{place}].folder", mount.folder) for place, mount in enumerate(self.mounts, 1) if mount.folder
        ]
        sockets = {"/var/run/docker.sock", "/run/docker.sock"}
        if self.docker.host.startswith("unix://"):
            sockets.add(self.docker.host.removeprefix("unix://"))
        faults = [
            f"{key} {fault}"
            for key, folder in folders
            for fault in (
                "gives away the engine's socket" if any(_overlap(folder, socket) for socket in sockets) else "",
                "gives away the home folder" if _overlap(folder, self.home) or _overlap(self.home, folder) else "",
                "gives away the scratch folders"
                if self.scratch_folder and (_overlap(folder, self.scratch) or _overlap(self.scratch, folder))
                else "",
            )
            if fault
        ]
        seen: set[tuple[str, str]] = set()
        for place, mount in enumerate(self.mounts, 1):
            for glob in mount.archives:
                if (mount.name, glob) in seen:
                    faults.append(f"mounts[{place}].archives gives {mount.name!r} to {glob!r} a second time")
                seen.add((mount.name, glob))
        if faults:
            raise PydanticCustomError("mounts", "{faults}", {"faults": "; ".join(faults)})
        return self

    @property
    def scratch(self) -> Path:
        """The folder of all scratch folders."""
        return self.scratch_folder or self.home / "scratch"

    @property
    def host(self) -> str:
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The port; 0: any free one."""
        return int(self.listen.rpartition(":")[2])

    def credentials_for(self, url: str) -> Credentials | None:
        """The entry with the longest matching prefix. A prefix ends at a slash of the URL or at its
        end.
        """
        fitting = [entry for entry in self.credentials if (url + "/").startswith(entry.url.rstrip("/") + "/")]
        return max(fitting, key=lambda entry: len(entry.url), default=None)

    def webhook_for(self, url: str) -> Webhook | None:
        """The entry whose host a URL names."""
        return next((entry for entry in self.webhooks if entry.url == origin_of(url)), None)

    @property
    def pages_url(self) -> str:
        """The address before the path of a page."""
        return self.public_url or self.server or f"http://{self.listen}"

    @classmethod
    def load(
        cls, environ: Mapping[str, str] | None = None, file: Path | None = None, **overrides: Any
    ) -> Configuration:
        """Read the whole configuration. Raises ConfigurationError with every fault.

        ``environ``: the environment; None: the process's own. An override of None counts as not
        given.
        """
        environ = os.environ if environ is None else environ
        overrides = {key: value for key, value in overrides.items() if value is not None}
        home, path, is_required = places(environ, file, overrides.get("home"))

        faults: list[str] = []
        sources: dict[str, str] = {}
        values: dict[str, Any] = {"home": home}
        for where, found in (
            ("DOCKER_HOST", _from_docker(environ)),
            (str(path), from_file(path, required=is_required)),
            ("environment", _from_environment(environ, faults)),
            ("command line", overrides),
        ):
            for key, value in found.items():
                sources[key] = where
                if isinstance(value, dict):
                    # The keys of a table are independent: some may come from the file, others from
                    # the environment.
                    sources |= {f"{key}.{part}": where for part in value}
                    value = {**values.get(key, {}), **value} if isinstance(values.get(key, {}), dict) else value
                values[key] = value
        try:
            configuration = cls.model_validate(values)
        except ValidationError as error:
            faults += [_fault(detail, sources) for detail in error.errors(include_url=False, include_input=False)]
        if faults:
            raise ConfigurationError("the configuration", "; ".join(faults), "Correct it and start again.")
        return configuration


def _is_ipv6(host: str) -> bool:
    """Whether a text is an IPv6 address, with or without the brackets that it has in a URL."""
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        return ipaddress.IPv6Address(bare).scope_id is None
    except ValueError:
        return False


def _overlap(outer: Path, inner: Path | str) -> bool:
    """Whether one path is, or contains, the other, as they are written or where they lead on this
    host.
    """
    return Path(inner).is_relative_to(outer) or Path(os.path.realpath(inner)).is_relative_to(os.path.realpath(outer))


def variables() -> dict[str, tuple[str, ...]]:
    """The variable of each key that has one value and so can stand in the environment."""
    keys: list[tuple[str, ...]] = [(key,) for key in Configuration.model_fields if key not in _OF_MANY_VALUES]
    keys += [("docker", key) for key in Docker.model_fields]
    return {PREFIX + "_".join(key).upper(): key for key in keys}


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, Any]:
    names = variables()
    found: dict[str, Any] = {}
    for variable, value in environ.items():
        if variable in names:
            if value:
                *tables, key = names[variable]
                table = found
                for name in tables:
                    table = table.setdefault(name, {})
                table[key] = value
        elif (
            variable.startswith(PREFIX)
            and (near := _nearest(variable, [*names, PREFIX + "CONFIG"]))
            and near != variable
        ):
            # Other variables may be there for good reasons, such as those of a task; only a near
            # miss is a fault.
            faults.append(f"environment: {variable} is unknown (did you mean {near}?)")
    return found


def _from_docker(environ: Mapping[str, str]) -> dict[str, Any]:
    """The address at which Docker's own programs find the engine; it has the lowest precedence."""
    host = environ.get("DOCKER_HOST", "")
    return {"docker": {"host": host if "://" in host else f"tcp://{host}"}} if host else {}


_OF_MANY_VALUES = ("labels", "credentials", "docker", "mounts", "webhooks", "mail", "openid")


def _nearest(word: str, names: list[str]) -> str:
    """The name that was probably meant, or nothing. A variable that a task is given is never a near
    miss.
    """
    if word.removeprefix(PREFIX) in OF_TASKS:
        return ""
    return next(
        iter(difflib.get_close_matches(word, names, n=1, cutoff=0.6 if not word.startswith(PREFIX) else 0.88)), ""
    )


_TABLES: dict[str, type[BaseModel]] = {
    "credentials": Credentials,
    "docker": Docker,
    "mounts": PersistentMount,
    "webhooks": Webhook,
    "mail": Mail,
    "openid": OpenId,
    "openid.grants": OpenIdGrant,
    "openid.persons": OpenIdPerson,
}


def _fault(detail: Any, sources: dict[str, str]) -> str:
    """An error of pydantic, with the place, the key and the probable intention."""
    place = detail["loc"]
    key = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    where = sources.get(key) or sources.get(str(place[0]), "defaults") if place else ""
    name = PREFIX + key.upper().replace(".", "_") if where == "environment" else key
    head = f"{where}: {name} " if place else ""
    if detail["type"] == "extra_forbidden":
        table = ".".join(str(part) for part in place[:-1] if not isinstance(part, int))
        model = _TABLES.get(table, Configuration)
        near = _nearest(str(place[-1]), list(model.model_fields))
        return f"{head}is unknown" + (f" (did you mean {near}?)" if near else "")
    if detail["type"] == "tuple_type" and key in _TABLES:
        return f"{head}must be a list of tables; write [[{key}]]"
    plain = PLAIN_WORDS.get(detail["type"])
    return head + (plain.format(**detail.get("ctx", {})) if plain else str(detail["msg"]))
