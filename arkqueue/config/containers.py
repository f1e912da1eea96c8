"""The settings of containers: their engine, the defaults and limits of tasks in it, and the folders
and volumes that tasks may use.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from arkqueue.config.values import Cpu, Memory, Pids, Strict
from arkqueue.model import Pull

LOCAL_ENGINE = "unix:///var/run/docker.sock"


class Docker(Strict):
    """The container engine, and the defaults and limits of containers. Sizes are bytes, ``cpu`` is
    a number of processors.
    """

    host: str = LOCAL_ENGINE
    """The address of the engine; by default that of DOCKER_HOST, otherwise the local socket."""
    image: str | None = None
    """The image of tasks that name none, in archives that have none and may not run processes."""
    pull: Pull = Pull.MISSING
    """The cases in which an image is fetched, for tasks that set none."""
    cpu: Cpu | None = None
    memory: Memory | None = None
    pids: Pids = 4096
    """The limits of a task that asks for none; None: no limit, or that of ``most_…``."""
    most_cpu: Cpu | None = None
    most_memory: Memory | None = None
    most_pids: Pids | None = None
    """The most that a task may ask for; None: no limit."""

    @field_validator("host")
    @classmethod
    def _is_engine(cls, value: str) -> str:
        if not re.fullmatch(r"unix:///.+|[a-z]+://[^/\s]+.*", value):
            raise PydanticCustomError(
                "host",
                "is not a valid address of an engine; write it like unix:///var/run/docker.sock or tcp://127.0.0.1:2375",
            )
        return value

    @model_validator(mode="after")
    def _defaults_are_allowed(self) -> Self:
        for key in ("cpu", "memory", "pids"):
            usual, most = getattr(self, key), getattr(self, f"most_{key}")
            if "most_" + key in self.model_fields_set and key in self.model_fields_set and usual > most:
                raise PydanticCustomError("most", f"{key} must not be more than most_{key}")
        return self


class PersistentMount(Strict):
    """A folder of this host, or a volume of its engine, that tasks of some archives may use by its
    name.
    """

    name: str
    folder: Path | None = None
    volume: str | None = None
    archives: tuple[str, ...] = Field(min_length=1)
    """Globs of archives' names."""
    read_only: bool = False

    @field_validator("name", "volume")
    @classmethod
    def _is_name(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value):
            raise PydanticCustomError("name", "is not a valid name; use letters, digits, '.', '_' and '-', at most 100")
        return value

    @field_validator("folder")
    @classmethod
    def _is_a_folder_to_give(cls, value: Path | None) -> Path | None:
        if value is None:
            return None
        if not value.is_absolute() or ".." in value.parts:
            raise PydanticCustomError("folder", "is not an absolute path; write it like /srv/indexes")
        if os.path.realpath(value) == "/":
            raise PydanticCustomError(
                "folder", "is the whole host; name a folder that holds nothing but what tasks keep"
            )
        return value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.folder is None) == (self.volume is None):
            raise PydanticCustomError("source", "give folder or volume, one of them")
        return self

    @property
    def source(self) -> Path | str:
        """The folder, or the name of the volume."""
        return self.folder or self.volume or ""
