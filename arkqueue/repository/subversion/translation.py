"""Turns a stored text into the file that ``svn export`` writes: line ends, keywords, symlinks,
executable bits, and the modification time.

libsvn translates. subvertpy does not bind that part of it, so its functions are called here through
`ctypes`, in the copy of libsvn that reads the repository. The rules are those of the export editor
in libsvn_client. `svn:mime-type` and `svn:needs-lock` have no effect, and properties of folders
(also inherited ones) do not apply to files.

Only `TreeWriter` handles names: libsvn gets two open files. ``$Date$`` is written in this host's
time zone, as by ``svn``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_void_p
from functools import lru_cache

from arkqueue.errors import WorkspaceError
from arkqueue.repository.subversion.library import ra
from arkqueue.repository.tree_writer import TreeWriter

_LINE_ENDS, _KEYWORDS = "svn:eol-style", "svn:keywords"
_REVISION, _DATE, _AUTHOR = "svn:entry:committed-rev", "svn:entry:committed-date", "svn:entry:last-author"

_READ, _WRITE = 1, 2
"""APR_FOPEN_READ and APR_FOPEN_WRITE."""

_FIRST_OF_APR = 20000
"""APR_OS_START_ERROR: lower numbers are those of the operating system."""


def is_translated(properties: Mapping[str, bytes]) -> bool:
    """True if a file with these properties may differ from its stored text."""
    return "svn:special" not in properties and (_LINE_ENDS in properties or _KEYWORDS in properties)


def _set_bits_and_time(writer: TreeWriter, place: bytes, properties: Mapping[str, bytes]) -> None:
    if "svn:executable" in properties:
        writer.make_executable(place)
    if moment := _microseconds(properties.get(_DATE)):
        writer.set_time(place, properties.get(_REVISION, b"").decode(errors="replace"), moment * 1000)


class Translation:
    """Finishes the files of one archive. ``url``: the archive's folder, as the session names it.
    ``root``: the repository.
    """

    def __init__(self, url: str, root: str) -> None:
        self._url, self._root = url.encode(), root.encode()

    def finish(self, writer: TreeWriter, place: bytes, properties: Mapping[str, bytes]) -> None:
        """Apply a file's properties to the file at ``place``, which has its stored text."""
        if "svn:special" in properties and writer.make_symlink(place):
            return
        if is_translated(properties):
            with _pool() as pool:
                line_end, keywords = _line_end(properties.get(_LINE_ENDS)), self._keywords(place, properties, pool)
                if line_end is not None or keywords:
                    with writer.rewritten(place) as (stored, new):
                        _copy(_stream(stored, _READ, pool), new, line_end, keywords, pool)
        _set_bits_and_time(writer, place, properties)

    def write(self, writer: TreeWriter, place: bytes, text: bytes, properties: Mapping[str, bytes]) -> None:
        """Write a file whose stored text is in memory. That is faster than writing it twice."""
        if not is_translated(properties):
            writer.write(place, (text,))
            self.finish(writer, place, properties)
            return
        with _pool() as pool, writer.created(place) as new:
            line_end, keywords = _line_end(properties.get(_LINE_ENDS)), self._keywords(place, properties, pool)
            string = _String(text, len(text))
            _copy(c_void_p(_lib.svn_stream_from_string(byref(string), pool)), new, line_end, keywords, pool)
        _set_bits_and_time(writer, place, properties)

    def _keywords(self, place: bytes, properties: Mapping[str, bytes], pool: c_void_p) -> c_void_p:
        """The keywords of a file and their values: a hash of libsvn, or a null pointer."""
        keywords = c_void_p()
        if _KEYWORDS in properties:
            url = _lib.svn_path_url_add_component2(self._url, place, pool)
            _run(_lib.svn_subst_build_keywords3(
                byref(keywords), _c_string(properties[_KEYWORDS]), properties.get(_REVISION), url, self._root,
                _microseconds(properties.get(_DATE)), _c_string(properties.get(_AUTHOR)), pool,
            ))  # fmt: skip
        return keywords


# --- libsvn, by ctypes -----------------------------------------------------------------------------------------------


class _Error(ctypes.Structure):
    """The beginning of svn_error_t."""

    _fields_ = (("status", c_int), ("message", c_char_p))


class _String(ctypes.Structure):
    """svn_string_t"""

    _fields_ = (("data", c_char_p), ("length", ctypes.c_size_t))


_Outcome = POINTER(_Error)
_lib = ctypes.CDLL(ra.__file__)


def _declare(name: str, result: object, *arguments: object) -> None:
    function = getattr(_lib, name)
    function.restype, function.argtypes = result, arguments


_declare("svn_pool_create_ex", c_void_p, c_void_p, c_void_p)
_declare("apr_pool_destroy", None, c_void_p)
_declare("svn_error_clear", None, c_void_p)
_declare("apr_os_file_put", c_int, POINTER(c_void_p), POINTER(c_int), c_int32, c_void_p)
_declare("svn_stream_from_aprfile2", c_void_p, c_void_p, c_int, c_void_p)
_declare("svn_stream_from_string", c_void_p, POINTER(_String), c_void_p)
_declare("svn_stream_copy3", _Outcome, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
_declare("svn_subst_stream_translated", c_void_p, c_void_p, c_char_p, c_int, c_void_p, c_int, c_void_p)
_declare("svn_subst_eol_style_from_value", None, POINTER(c_int), POINTER(c_char_p), c_char_p)
_declare("svn_path_url_add_component2", c_char_p, c_char_p, c_char_p, c_void_p)
_declare("svn_time_from_cstring", _Outcome, POINTER(c_int64), c_char_p, c_void_p)
_declare("svn_subst_build_keywords3", _Outcome, POINTER(c_void_p), c_char_p, c_char_p, c_char_p, c_char_p, c_int64, c_char_p,
         c_void_p)  # fmt: skip


@contextmanager
def _pool() -> Iterator[c_void_p]:
    pool = c_void_p(_lib.svn_pool_create_ex(None, None))
    try:
        yield pool
    finally:
        _lib.apr_pool_destroy(pool)


def _run(outcome: ctypes._Pointer[_Error]) -> None:
    if outcome:
        status, message = outcome.contents.status, (outcome.contents.message or b"").decode(errors="replace")
        _lib.svn_error_clear(outcome)
        if status < _FIRST_OF_APR:  # such as a full disk, for which `TreeWriter` has a message
            raise OSError(status, os.strerror(status))
        fault = message or f"libsvn answers with error {status}"
        raise WorkspaceError("files", f"cannot be translated ({fault})", "Free space there, or correct the properties.")


def _copy(stored: c_void_p, new: int, line_end: bytes | None, keywords: c_void_p, pool: c_void_p) -> None:
    """Translate a stream of a stored text into an open file."""
    translated = stored
    if line_end is not None or keywords:
        translated = _lib.svn_subst_stream_translated(stored, line_end, True, keywords, True, pool)
    _run(_lib.svn_stream_copy3(translated, _stream(new, _WRITE, pool), None, None, pool))


def _stream(descriptor: int, flags: int, pool: c_void_p) -> c_void_p:
    """A stream of libsvn over an open file, which it does not close."""
    file = c_void_p()
    if status := _lib.apr_os_file_put(byref(file), byref(c_int(descriptor)), flags, pool):
        raise OSError(status, "a file cannot be given to libsvn")
    return c_void_p(_lib.svn_stream_from_aprfile2(file, True, pool))


def _line_end(style: bytes | None) -> bytes | None:
    """The line end of a style on this host; None: as stored, also for a style that libsvn does not
    know.
    """
    if style is None:
        return None
    kind, line_end = c_int(), c_char_p()
    _lib.svn_subst_eol_style_from_value(byref(kind), byref(line_end), _c_string(style))
    return line_end.value


@lru_cache(1000)
def _microseconds(date: bytes | None) -> int:
    """The microseconds since 1970 of a revision's date; 0 if it has none, or an invalid one."""
    found = c_int64()
    with _pool() as pool:
        outcome = _lib.svn_time_from_cstring(byref(found), _c_string(date or b""), pool)
        if outcome:
            _lib.svn_error_clear(outcome)
            return 0
    return found.value


def _c_string(value: bytes | None) -> bytes | None:
    """The value as C reads it, up to the first NUL."""
    return value if value is None else value.split(b"\0")[0]
