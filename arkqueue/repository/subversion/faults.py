"""Errors of libsvn in plain words. Called by `subversion` only."""

from __future__ import annotations

from subvertpy import SubversionException

from arkqueue.errors import ArchiveUnreachable, ArkqueueError, NotFound

UNREADABLE = {170001, 175013, 220001}
NO_SUCH_REVISION, _NOT_FOUND, _NOT_DIRECTORY = 160006, 160013, 160016

_REFUSED = (
    "the server refuses access",
    "Check this archive's username and password in the configuration, and what that user may read.",
)
_FAULTS = {
    111: ("the server does not answer (connection refused)", "Check that it runs."),
    170000: ("this is not a URL that Subversion accepts", "Use file, svn, svn+ssh, http or https."),
    170001: _REFUSED,
    170011: (
        "its server sends us elsewhere",
        "Have the server answer at this URL, or register the archive at the other one.",
    ),
    170013: ("no connection to the repository", "Check the URL, the server and the network."),
    175013: _REFUSED,
    180001: ("there is no Subversion repository, or no right to read it", "Check the path and its permissions."),
    210002: ("the server closed the connection", "Check that it runs."),
    210005: ("the server has no such repository", "Check the URL."),
    220001: _REFUSED,
    215001: ("the server asks for a name and password", "Set them for this archive in the configuration."),
    215004: ("the server refuses the name or password", "Correct this archive's username and password."),
    # The remedy includes a restart, because libsvn reads that file once in a process.
    230001: (
        "the server's certificate is not trusted",
        "Add its authority to this user's ~/.subversion/servers (ssl-authority-files), and start arkqueue again.",
    ),
    670002: ("the host name is unknown", "Check the URL and the name service."),
}


def explained(thing: str, error: SubversionException) -> ArkqueueError:
    """The error for libsvn's chain of faults, which has the cause last. The innermost fault that
    this module knows gives the text.
    """
    chain = _chain(error)
    codes = [code for _, code in chain]
    cause = chain[-1][0]
    if NO_SUCH_REVISION in codes:
        return NotFound(thing, f"has no such revision ({cause})")
    if any(code in {_NOT_FOUND, _NOT_DIRECTORY} for code in codes):
        return NotFound(thing, f"has no such path ({cause})")
    fault, remedy = next((_FAULTS[code] for code in reversed(codes) if code in _FAULTS), ("it cannot be read", ""))
    return ArchiveUnreachable(thing, f"{fault} ({cause})", remedy)


def _chain(error: SubversionException) -> list[tuple[str, int]]:
    chain, link = [], error
    while link is not None:
        chain.append(link.args[:2])
        link = getattr(link, "child", None)
    return chain


def codes_of(error: SubversionException) -> set[int]:
    return {code for _, code in _chain(error)}
