"""How a package gets to its target: a module for each transport, of which only the one that is needed is imported."""

from __future__ import annotations

from importlib import import_module

from targets import Session, Target
from task import Failure

TRANSPORTS = {"folder": "FolderSession", "rest": "RestSession", "sftp": "SftpSession"}


def connect(target: Target) -> Session:
    """Connect with a target, over its transport."""
    if target.transport not in TRANSPORTS:
        raise Failure(
            f"target {target.name}: there is no transport {target.transport!r}; known: {', '.join(TRANSPORTS)}"
        )
    session: Session = getattr(import_module(f"transports.{target.transport}"), TRANSPORTS[target.transport])(target)
    return session
