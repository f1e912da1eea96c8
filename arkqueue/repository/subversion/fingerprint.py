"""The fingerprint of a local Subversion repository: what the file system says of its youngest revision, read without libsvn.

FSFS writes `db/current` with each commit, and `db/uuid` says which repository it is. A scan also sees a changed author
or date of the last known revision; where nothing was committed or restored, that waits for the next whole scan.
"""

from __future__ import annotations

import os

from arkqueue.repository.files import ABSENT, digest, state

_LENGTH = 200
"""Bytes: more than either file holds."""


def fingerprint(path: str) -> bytes | None:
    """Another one after each commit to the repository that holds ``path``; None where the files do not tell."""
    try:
        while True:
            current = state(path + "/db/current", _LENGTH)
            if current != ABSENT:
                return digest((current, state(path + "/db/uuid", _LENGTH)))
            # The path may go on inside the repository.
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent
    except OSError:
        return None
