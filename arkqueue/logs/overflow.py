"""A file for output that waits to be stored and is too large for memory. Called by ``logs``."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path

RESERVE = 1 << 30
"""The bytes that stay free on the disk for others: the database may be on the same disk."""


class Spill:
    """A file without a name with pieces of at most ``longest`` bytes. It is made when it is first
    needed, and ends with this object.

    Only one caller may write at a time. But anybody may release a piece at any time; another piece
    takes its place.
    """

    def __init__(self, folder: Path | None, longest: int) -> None:
        self._folder, self._longest = folder, longest
        self._file: _File | None = None
        self._places = 0
        self._free: deque[int] = deque()

    def put(self, data: bytes | bytearray) -> Piece | None:
        """Write a piece into the file. Returns None if there is no room or no file, so that the
        piece stays in memory.
        """
        with suppress(OSError):
            self._file = self._file or _File(self._folder)
            if (place := self._place(self._file)) is not None:
                piece = Piece(self._file, place, self._longest, len(data), self._free)
                if os.pwrite(self._file.descriptor, data, piece.position) == len(data):
                    return piece
        return None

    def _place(self, file: _File) -> int | None:
        if self._free:
            return self._free.popleft()
        disk = os.fstatvfs(file.descriptor)
        if disk.f_bavail * disk.f_frsize < RESERVE:
            return None
        self._places += 1
        return self._places - 1


class Piece:
    """Some bytes in the file. Their place becomes free when nobody refers to this object any more."""

    __slots__ = ("_file", "_free", "_place", "_size", "position")

    def __init__(self, file: _File, place: int, longest: int, size: int, free: deque[int]) -> None:
        self._file, self._place, self._size, self._free = file, place, size, free
        self.position = place * longest

    def __len__(self) -> int:
        return self._size

    def __del__(self) -> None:
        self._free.append(self._place)

    def __bytes__(self) -> bytes:
        """The bytes. Raises OSError if they cannot be read."""
        data = os.pread(self._file.descriptor, self._size, self.position)
        if len(data) < self._size:
            raise OSError(f"only {len(data)} of {self._size} bytes can be read again")
        return data


class _File:
    """A file without a name, closed when nobody refers to it any more."""

    __slots__ = ("__weakref__", "descriptor")

    def __init__(self, folder: Path | None) -> None:
        with tempfile.TemporaryFile(dir=folder) as file:
            self.descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        with suppress(AttributeError):  # the file could not be made
            os.close(self.descriptor)
