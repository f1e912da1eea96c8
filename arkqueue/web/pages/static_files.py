"""The style sheet, the scripts and the icon of the pages."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Final

from starlette import types
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from arkqueue.web.hosts import check_host
from arkqueue.web.problems import Refused, of_error

FOLDER: Final = Path(__file__).parent / "static"
YEAR: Final = 365 * 24 * 3600
"""Seconds."""


@cache
def version() -> str:
    """The version in the addresses of the files: a digest of their contents, so that a browser may
    keep a file, and an upgrade is visible at once.
    """
    contents = hashlib.sha256()
    for file in sorted(FOLDER.iterdir()):
        contents.update(file.read_bytes())
    return contents.hexdigest()[:12]


def static_files() -> types.ASGIApp:
    """The files, compressed for browsers."""
    return GZipMiddleware(_Files(directory=FOLDER), minimum_size=1000)


class _Files(StaticFiles):
    """A browser keeps a file of this version. If the address names another version or none, a
    browser checks each time whether the file has changed.
    """

    async def get_response(self, path: str, scope: types.Scope) -> Response:
        try:
            check_host(Request(scope))
        except Refused as refused:
            return of_error(refused)
        return await super().get_response(path, scope)

    def file_response(self, full_path: Any, stat_result: Any, scope: types.Scope, status_code: int = 200) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        is_current = scope["query_string"] == version().encode()
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = f"max-age={YEAR}, immutable" if is_current else "no-cache"
        return response
