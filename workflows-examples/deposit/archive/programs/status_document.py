"""The status document of a deposit: an Atom feed or entry with a category of SWORD's scheme, as DSpace's statements are."""

from __future__ import annotations

from dataclasses import dataclass

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring
from task import Failure, shown

ATOM = "{http://www.w3.org/2005/Atom}"
SCHEME = "http://purl.org/net/sword/terms/state"


@dataclass(frozen=True)
class StatusDocument:
    """``state``: the term of its category; ``description``: the category's text; ``copy``: where the deposit can be seen."""

    state: str
    description: str
    copy: str


def read(text: bytes) -> StatusDocument:
    """Read a status document. One that cannot be read is a failure, not a status."""
    try:
        root = fromstring(text, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise Failure(f"the status document cannot be read: {error}") from None
    states = [one for one in root.iter(f"{ATOM}category") if one.get("scheme") == SCHEME and one.get("term")]
    if root.tag not in (f"{ATOM}feed", f"{ATOM}entry") or not states:
        raise Failure(f"the status document has no Atom category of the scheme {SCHEME}")
    links = [one.get("href", "") for one in root.iter(f"{ATOM}link") if one.get("rel") == "alternate"]
    return StatusDocument(
        shown(states[0].get("term", "")), shown(states[0].text or ""), shown(links[0]) if links else ""
    )
