"""The fingerprint of a local Subversion repository: the file system's view of its youngest
revision, read without libsvn.

FSFS writes `db/current` with each commit, and `db/uuid` identifies the repository. A scan also
finds a changed author or date of the last known revision; without a commit or a restore, the next
whole scan finds that.
"""

from __future__ import annotations

import os

from arkqueue.repository.files import ABSENT, digest, state

_LENGTH = 200
"""The bytes to read: more than either file has."""


def fingerprint(path: str) -> bytes | None:
    """The fingerprint, which differs after each commit to the repository that holds ``path``; None
    if the files do not show it.
    """
    try:
        while True:
            current = state(path + "/db/current", _LENGTH)
            if current != ABSENT:
                return digest((current, state(path + "/db/uuid", _LENGTH)))
            # The path may lead into the repository.
            parent = os.path.dirname(path)
            if parent == path:
                return None
            path = parent
    except OSError:
        return None
