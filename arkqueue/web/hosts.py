"""The names under which browsers may reach this server. Another name may be one of a foreign site,
which leads a browser here to read what only that browser can reach (DNS rebinding).

Calls of the API are answered under every name: a browser has no token for them. ``healthz`` is, too,
because probes and task managers reach the server under names that only machines know.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from functools import cache
from urllib.parse import urlsplit

from starlette.requests import Request

from arkqueue.text import one_line
from arkqueue.web.problems import Refused

LONGEST_HOST = 255
"""The most characters of a foreign name that a refusal repeats."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::\d{1,5})?", re.ASCII)
"""A name or an address, and perhaps a port. Starlette takes the part of the header that it
understands.
"""


def check_host(request: Request) -> None:
    """Raise `Refused` if the browser was led here under a foreign name."""
    header, configuration = request.headers.get("host", ""), request.app.state.configuration
    found = _HOST.fullmatch(header)
    host = found[1].strip("[]").lower() if found else header
    named = urlsplit(configuration.public_url or "").hostname
    if not (_is_address(host) or host in _own_names() or host in configuration.hosts or host == named):
        fault = f"asks for the host {one_line(ascii(host), LONGEST_HOST)}, which is not a name of this server"
        raise Refused(421, "the request", fault, "Set hosts in the configuration to the names of this server.")


def scheme_of(request: Request) -> str:
    """The scheme with which a browser reaches this server. A proxy that ends TLS speaks plain HTTP to
    this server, so the name of ``public_url`` counts as reached in the way that is written there.
    """
    public = urlsplit(request.app.state.configuration.public_url or "")
    return public.scheme if request.url.netloc.lower() == public.netloc.lower() else request.url.scheme


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


@cache
def _own_names() -> frozenset[str]:
    return frozenset({"localhost", socket.gethostname().lower(), socket.getfqdn().lower()})
