"""The target repositories: a file for each in ``targets/``, and the credentials outside of the archive."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml
from task import Failure

FIELDS = {"title", "assembler", "transport", "address", "collection", "credentials", "host_key", "status"}
ACCEPTED, REJECTED, SUBMITTED = "accepted", "rejected", "submitted"


@dataclass(frozen=True)
class Receipt:
    """What a target says of a deposit that it has: where the package is, and where its status can be asked for ('' : nowhere)."""

    package: str
    copy: str
    reference: str = ""


class Session(Protocol):
    """A connection with a target. Each call raises ``Unreachable`` where nobody answers, and ``Failure`` for a refusal."""

    def find(self, name: str) -> Receipt | None:
        """The deposit of this name, if the target has it already."""

    def send(self, name: str, package: Path, metadata: dict[str, Any]) -> Receipt:
        """Deposit a package under a name."""

    def digest(self, receipt: Receipt) -> str:
        """The SHA-256 of the package as the target has it, in hexadecimal digits."""

    def status(self, reference: str) -> bytes:
        """The status document of a deposit."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Target:
    """A target repository, as its file in ``targets/`` describes it."""

    name: str
    assembler: str
    transport: str
    address: str
    title: str = ""
    collection: str = ""
    credentials: str = ""
    host_key: str = ""
    status: dict[str, str] = field(default_factory=dict)
    """What a state of the status document means; ``default`` for any other."""

    @classmethod
    def load(cls, name: str) -> Target:
        file = Path("targets") / f"{name}.yaml"
        try:
            found = yaml.safe_load(file.read_text("utf-8"))
        except FileNotFoundError:
            known = ", ".join(sorted(other.stem for other in file.parent.glob("*.yaml"))) or "none"
            raise Failure(f"there is no target repository {name!r}; known: {known}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise Failure(f"{file} is not YAML: {error}") from None
        if not isinstance(found, dict) or not {"assembler", "transport", "address"} <= found.keys() <= FIELDS:
            raise Failure(f"{file}: needs assembler, transport and address, and may have {', '.join(sorted(FIELDS))}")
        states = found.get("status") or {}
        if not isinstance(states, dict) or not set(states.values()) <= {ACCEPTED, REJECTED, SUBMITTED}:
            raise Failure(f"{file}: status: each state is {ACCEPTED}, {REJECTED} or {SUBMITTED}")
        return cls(name, **{**found, "status": states})

    def meaning(self, state: str) -> str:
        """Accepted, rejected, or submitted: still in review."""
        return self.status.get(state, self.status.get("default", SUBMITTED))

    def secret(self) -> Path:
        """The file with this target's password or key, which nobody but its owner may read."""
        file = Path(os.environ["CREDENTIALS"]) / self.credentials
        try:
            found = file.lstat()
        except FileNotFoundError:
            raise Failure(f"target {self.name}: there are no credentials {file}") from None
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            raise Failure(f"target {self.name}: {file} is not a file for its owner alone; chmod 600 {file}")
        return file
