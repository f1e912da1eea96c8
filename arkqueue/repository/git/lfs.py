"""Fetches the files that Git LFS stores elsewhere, for a new clone, and replaces their pointers
with them.

The batch API (https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md) is small, and this
module implements it. So this host needs no git-lfs, and each address is checked: the server's, and
those that the server gives for files. A redirect is not followed. A file is accepted only with the
size and the SHA-256 that its pointer names.

The clone is left as git-lfs would leave it, so that the task's own git-lfs finds the files and
commits pointers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import pygit2
from pygit2.enums import AttrCheck

from arkqueue.errors import ArchiveUnreachable, WorkspaceError
from arkqueue.repository.following.addresses import Address, NoAddress, read_address
from arkqueue.repository.following.allowance import Allowance, shown
from arkqueue.repository.git.program import run_git
from arkqueue.repository.git.submodules import LONGEST_MODULES, Clone, Contents

AT_ONCE = 100
"""The most files that one request asks for."""
LONGEST_POINTER = 1024
LONGEST_ANSWER = 4 * 2**20
"""The most bytes of a server's answer."""
SILENCE = 60.0
"""Seconds without a byte after which a request fails."""
_PIECE = 2**18
_LATER = 3600.0
"""Seconds."""
_TYPE = "application/vnd.git-lfs+json"
_POINTER = re.compile(
    rb"version https?://(?:git-lfs\.github\.com/spec/v1|git-media\.io/v/2|hawser\.github\.com/spec/v1)\n"
    rb"oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n?"
)

SETTINGS = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
    "filter.lfs.required": "true",
    # The files are given to the task's user after this. git must not read them all again because of
    # that.
    "core.checkStat": "minimal",
    "core.trustctime": "false",
}
"""The settings of ``git lfs install --local``, and two more."""
_STORE = "ARKQUEUE_LARGE_FILES"
_SMUDGE = f"cat \"${_STORE}/$(sed -n 's,^oid sha256:\\(..\\)\\(..\\)\\(.*\\)$,\\1/\\2/\\1\\2\\3,p')\""
"""Prints the file of a pointer. The folder comes from an environment variable: its path may contain
a name that a committer chose, and git replaces ``%f`` in a command, also within quotes.
"""
_PRE_PUSH = '#!/bin/sh\nexec git lfs pre-push "$@"\n'


@dataclass(frozen=True, slots=True)
class Pointer:
    oid: str
    size: int


class LargeFiles:
    """Follows the Git LFS files of one working copy."""

    def __init__(self, allowance: Allowance, timeout: float) -> None:
        self._allowance, self._timeout = allowance, timeout

    def follow(self, clone: Clone, contents: Contents) -> None:
        pointers = _pointers(clone, contents)
        if not pointers:
            return
        what = f"Git LFS of {shown(clone.place) if clone.place else 'the repository'} ({len(pointers)} files)"
        server = self._server(clone, contents, what)
        if server is None:
            return
        self._allowance.begin(what)
        wanted = sorted({pointer.oid: pointer for pointer in pointers.values()}.values(), key=lambda one: one.oid)
        self._allowance.take(what, 2 * sum(pointer.size for pointer in wanted))
        store = clone.repository / "lfs" / "objects"
        got: set[str] = set()
        for first in range(0, len(wanted), AT_ONCE):
            got |= self._some(what, server, wanted[first : first + AT_ONCE], store)
        self._put(what, clone, [path for path, pointer in pointers.items() if pointer.oid in got], store)

    def _server(self, clone: Clone, contents: Contents, what: str) -> Address | None:
        url = self._configured(clone, contents)
        try:
            if url:
                server = read_address(url)
            elif clone.origin is None:
                self._allowance.note(
                    f"{what} is not followed: the repository is one of this host, and .lfsconfig names no server"
                )
                return None
            else:
                server = _beside(clone.origin)
        except NoAddress as fault:
            self._allowance.refuse(what, url, str(fault))
            return None
        if server.scheme not in ("http", "https"):
            self._allowance.refuse(
                what, str(server), "it is asked over http and https only; lfs.url in .lfsconfig can name such a server"
            )
            return None
        if not self._allowance.allows(server):
            self._allowance.forbid(what, server)
            return None
        return server

    def _configured(self, clone: Clone, contents: Contents) -> str:
        """The value of ``lfs.url`` in ``.lfsconfig``. Its other settings are ignored."""
        id = contents.files.get(b".lfsconfig")
        if id is None or pygit2.Repository(str(clone.repository)).odb.read_header(id)[1] > LONGEST_MODULES:
            return ""
        place = ("--git-dir", str(clone.repository), "config", "--no-includes", "--blob", str(id), "-z")
        try:
            return self._git(".lfsconfig", *place, "--get", "lfs.url").rstrip("\0")
        except ArchiveUnreachable:  # .lfsconfig has no lfs.url
            return ""

    def _some(self, what: str, server: Address, wanted: list[Pointer], store: Path) -> set[str]:
        """Fetch some files. Returns the ids of those that were fetched."""
        objects = [{"oid": pointer.oid, "size": pointer.size} for pointer in wanted]
        body = {"operation": "download", "transfers": ["basic"], "objects": objects, "hash_algo": "sha256"}
        headers = {"Accept": _TYPE, "Content-Type": _TYPE, **self._signed_in(server)}
        with self._opened(what, f"{server}/objects/batch", headers, json.dumps(body).encode()) as answer:
            text = b""
            while len(text) <= LONGEST_ANSWER and (piece := answer.read1(_PIECE)):
                self._allowance.seconds_left(what)
                text += piece
        actions = _actions(what, text)
        return {
            pointer.oid for pointer in wanted if self._one(what, server, pointer, actions.get(pointer.oid, {}), store)
        }

    def _one(self, what: str, server: Address, pointer: Pointer, action: Mapping[str, Any], store: Path) -> bool:
        if "error" in action:
            raise WorkspaceError(f"{what}: {server}", f"it has no file {pointer.oid}: {shown(str(action['error']))}")
        download = action.get("download")
        href = download.get("href") if isinstance(download, dict) else None
        if not isinstance(download, dict) or not isinstance(href, str):
            raise WorkspaceError(f"{what}: {server}", f"it does not say where file {pointer.oid} is")
        try:
            address = read_address(href, with_query=True)
            if address.scheme not in ("http", "https"):
                raise NoAddress("it is fetched over http and https only")
        except NoAddress as fault:
            self._allowance.refuse(f"a file of {what}", href, str(fault))
            return False
        if not self._allowance.allows(address):
            self._allowance.forbid(f"a file of {what}", Address(address.scheme, address.host, (), "", address.port))
            return False
        given = download.get("header")
        headers = {str(key): str(value) for key, value in (given if isinstance(given, dict) else {}).items()}
        headers = {key: value for key, value in headers.items() if key.lower() != "host"}
        if not any(key.lower() == "authorization" for key in headers) and address.server == server.server:
            headers |= self._signed_in(server)
        place = store / pointer.oid[:2] / pointer.oid[2:4] / pointer.oid
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_suffix(".part")
        digest, size = hashlib.sha256(), 0
        with self._opened(what, str(address), headers) as answer, part.open("xb") as file:
            while piece := answer.read1(_PIECE):
                self._allowance.seconds_left(what)
                size += len(piece)
                if size > pointer.size:
                    break
                digest.update(piece)
                file.write(piece)
        if size != pointer.size or digest.hexdigest() != pointer.oid:
            part.unlink()
            raise WorkspaceError(f"{what}: {server}", f"the server sent other contents for file {pointer.oid}")
        part.rename(place)
        return True

    def _signed_in(self, server: Address) -> dict[str, str]:
        login = self._allowance.login(server)
        if login is None or login.password is None:
            return {}
        return {"Authorization": "Basic " + base64.b64encode(f"{login.username}:{login.password}".encode()).decode()}

    @contextmanager
    def _opened(
        self, what: str, url: str, headers: dict[str, str], body: bytes | None = None
    ) -> Iterator[HTTPResponse]:
        thing = f"{what}: {url.partition('?')[0]}"
        opener = urllib.request.OpenerDirector()
        for handler in (urllib.request.ProxyHandler, urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
            opener.add_handler(handler())
        request = urllib.request.Request(url, body, headers)
        try:
            answer = opener.open(request, timeout=min(SILENCE, self._allowance.seconds_left(what)))
            assert isinstance(answer, HTTPResponse)
            with answer:
                status = answer.status
                if status in (401, 403, 404, 410):
                    raise WorkspaceError(thing, f"its server refuses (HTTP {status})")
                if not 200 <= status < 300:
                    raise ArchiveUnreachable(thing, f"its server says HTTP {status}, which is not followed")
                yield answer
        except (OSError, HTTPException, ValueError) as error:
            raise ArchiveUnreachable(thing, f"its server cannot be asked ({shown(str(error))})") from error

    def _put(self, what: str, clone: Clone, paths: list[str], store: Path) -> None:
        """Have git write the files again, with the fetched files for pointers, so that its index
        knows their present state.
        """
        if not paths:
            return
        index = clone.repository / "index"
        # git reads each file that is not older than its index, with a filter that this host or the
        # task may lack.
        os.utime(index, (time.time() + _LATER,) * 2)
        for path in paths:
            (clone.work / path).unlink()
        given = b"".join(os.fsencode(path) + b"\0" for path in paths)
        here = ("-C", str(clone.work), "--git-dir", str(clone.repository), "--work-tree", str(clone.work))
        filters = ("-c", f"filter.lfs.smudge={_SMUDGE}", "-c", "filter.lfs.required=true")
        command = (*here, *filters, "checkout-index", "--force", "-u", "-z", "--stdin")
        self._git(what, *command, given=given, variables={_STORE: str(store)})
        for key, value in SETTINGS.items():
            self._git(what, "--git-dir", str(clone.repository), "config", key, value)
        hooks = clone.repository / "hooks"
        hooks.mkdir(exist_ok=True)
        (hooks / "pre-push").write_text(_PRE_PUSH, encoding="utf-8")
        (hooks / "pre-push").chmod(0o755)
        second = math.floor(time.time()) + 1
        time.sleep(max(0.0, second - time.time()))
        os.utime(index, (second, second))

    def _git(
        self, thing: str, *arguments: str, given: bytes | None = None, variables: Mapping[str, str] | None = None
    ) -> str:
        left = min(self._timeout, self._allowance.seconds_left(thing))
        return run_git(thing, *arguments, timeout=left, given=given, variables=variables)


def _beside(origin: Address) -> Address:
    """The address where git-lfs looks for the server of a repository."""
    if origin.scheme == "ssh" and origin.path[:1] == ("~",):
        path: tuple[str, ...] = origin.path[1:]
    else:
        path = origin.path
    if not path:
        raise NoAddress("it names no repository")
    name = path[-1] if path[-1].endswith(".git") else f"{path[-1]}.git"
    scheme = origin.scheme if origin.scheme in ("http", "https") else "https"
    port = origin.port if scheme == origin.scheme else None
    return Address(scheme, origin.host, (*path[:-1], name, "info", "lfs"), "", port)


def _pointers(clone: Clone, contents: Contents) -> dict[str, Pointer]:
    """The files with the filter of Git LFS that hold a pointer, by path."""
    repository = pygit2.Repository(str(clone.repository))
    flags = AttrCheck.INDEX_ONLY | AttrCheck.NO_SYSTEM
    found = {}
    for raw, id in contents.files.items():
        if repository.odb.read_header(id)[1] >= LONGEST_POINTER:
            continue
        path = os.fsdecode(raw)
        text = repository.read(id)[1]
        pointer = _POINTER.fullmatch(text)
        if pointer and repository.get_attr(path, "filter", flags) == "lfs":
            found[path] = Pointer(pointer[1].decode(), int(pointer[2]))
    return found


def _actions(what: str, text: bytes) -> dict[str, dict[str, Any]]:
    """The server's actions for each file. Raises `WorkspaceError` for an invalid answer."""
    fault = WorkspaceError(what, "its server gives no answer of the batch API")
    if len(text) > LONGEST_ANSWER:
        raise fault
    try:
        said = json.loads(text)
        objects = said["objects"]
        found = {}
        for one in objects:
            actions = one.get("actions") or {}
            found[str(one["oid"])] = {**actions, "error": one["error"].get("message")} if one.get("error") else actions
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise fault from None
    return found
