"""Reads OUTPUT, in which a task leaves values for later tasks.

A stranger wrote this file. So it is opened only if it is a regular file, through no symlink, and
read up to a limit. A value that PostgreSQL could not store is a fault. The task manager reads it
when no process of the attempt runs any more.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arkqueue.model import RETRY_AFTER, as_retry_after
from arkqueue.priorities import GREATEST_PRIORITY, LEAST_PRIORITY, PRIORITY, as_priority
from arkqueue.workspace.removal import FOLDER, NOT_FOLLOWED

OUTPUT_LIMIT = 2**20
"""The most bytes of OUTPUT that are read."""

_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)=(.*)")
_NUL = re.compile(r"(?<!\\)(\\\\)*\\u0000")


@dataclass(frozen=True, slots=True)
class Outputs:
    """The outputs that a task wrote to OUTPUT. ``fault``: why there are none, or why those that
    arkqueue itself reads are left out.

    A fault quotes no output, because faults stay in the log when the outputs are removed for good.
    """

    values: dict[str, Any]
    fault: str = ""


def read_outputs(work: Path, folder: str, limit: int) -> Outputs:
    """The values of ``files/output`` in a folder of the work folder, or the fault of the file.
    Raises PermissionError if the task has closed the file to this user.
    """
    try:
        data = _read(work, (folder, "files"), limit)
    except FileNotFoundError:
        return Outputs({})
    except _Unusable as error:
        return Outputs({}, f"OUTPUT {error}")
    except PermissionError:
        raise
    except OSError as error:
        return Outputs({}, f"OUTPUT cannot be read: {error.strerror}")
    return parse_outputs(data)


def _read(work: Path, folders: tuple[str, ...], limit: int) -> bytes:
    with contextlib.ExitStack() as opened:

        def kept(descriptor: int) -> int:
            opened.callback(os.close, descriptor)
            return descriptor

        folder = kept(os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for name in folders:
            try:
                folder = kept(os.open(name, FOLDER, dir_fd=folder))
            except OSError as error:
                if error.errno in (errno.ELOOP, errno.ENOTDIR):
                    raise _Unusable("is not in the task's workspace: its folder was replaced") from None
                raise
        # The file is checked before it is opened, because opening a device can have effects; and
        # again afterwards.
        _check(os.stat("output", dir_fd=folder, follow_symlinks=False), limit)
        output = kept(os.open("output", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | NOT_FOLLOWED, dir_fd=folder))
        _check(os.fstat(output), limit)
        data = b""
        while chunk := os.read(output, limit + 1 - len(data)):
            data += chunk
        if len(data) > limit:
            raise _Unusable(f"is longer than {limit} bytes")
        return data


class _Unusable(Exception):
    """OUTPUT is a kind of file that a task may not leave there."""


def _check(status: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kinds = {
            stat.S_IFLNK: "a symlink",
            stat.S_IFDIR: "a directory",
            stat.S_IFIFO: "a fifo",
            stat.S_IFSOCK: "a socket",
        }
        raise _Unusable(f"is {kinds.get(stat.S_IFMT(status.st_mode), 'a device')}: write a regular file")
    if status.st_nlink > 1:
        raise _Unusable("is a hard link to another file: write a file of its own")
    if status.st_size > limit:
        raise _Unusable(f"has {status.st_size} bytes, more than the {limit} that are read: pass a path instead")


def parse_outputs(data: bytes) -> Outputs:
    """The values of an OUTPUT file: ``key=value`` lines, or one JSON object. PostgreSQL can store
    all of them.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        return Outputs({}, f"OUTPUT line {number}: byte {data[error.start]:#04x} is not UTF-8")
    if text.lstrip().startswith("{"):
        return _parse_json(text)
    values: dict[str, Any] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.removesuffix("\r"))
        if match is None or "\0" in line:
            return Outputs({}, f"OUTPUT line {number} is not key=value, nor is the file a JSON object")
        values[match[1]] = match[2]
    return _checked(values)


def _parse_json(text: str) -> Outputs:
    try:
        values = json.loads(text)
        # Refuses NaN, infinities and halves of surrogate pairs, which are not valid JSON.
        again = json.dumps(values, allow_nan=False, ensure_ascii=False)
        again.encode()
    except json.JSONDecodeError as error:
        return Outputs({}, f"OUTPUT line {error.lineno}: it is not JSON: {error.msg}")
    except RecursionError:
        return Outputs({}, "OUTPUT: it is nested too deeply")
    except ValueError as error:
        return Outputs({}, f"OUTPUT: it has a value that JSON has not: {error}")
    if _NUL.search(again):
        return Outputs({}, "OUTPUT: it has a NUL character, which cannot be stored")
    return _checked(values)


def _checked(values: dict[str, Any]) -> Outputs:
    """The outputs without those that arkqueue itself reads and cannot use."""
    faults = []
    if PRIORITY in values and as_priority(values[PRIORITY]) is None:
        faults.append(f"{PRIORITY} is not a whole number from {LEAST_PRIORITY} to {GREATEST_PRIORITY}")
        del values[PRIORITY]
    if RETRY_AFTER in values and as_retry_after(values[RETRY_AFTER]) is None:
        faults.append(f"{RETRY_AFTER} is not a number of seconds")
        del values[RETRY_AFTER]
    return Outputs(values, f"OUTPUT: {'; '.join(faults)}; the other outputs count" if faults else "")
