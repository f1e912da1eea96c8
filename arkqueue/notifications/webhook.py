"""Sends a notification as a signed POST, by the Standard Webhooks specification: with
``webhook-id``, ``webhook-timestamp`` and ``webhook-signature``.

The signature is an HMAC-SHA-256 of ``ID.TIMESTAMP.BODY``, so that nobody can send an old
notification again as a new one. Each try has the same id, by which a receiver recognises a
repetition.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import ssl
import time
from pathlib import Path
from typing import Final

from arkqueue.config import Configuration
from arkqueue.config.receivers import read_key
from arkqueue.errors import ConfigurationError
from arkqueue.notifications.message import Message
from arkqueue.notifications.sending import NotSent, within_time
from arkqueue.text import one_line

LONGEST_ANSWER = 2000
"""The most bytes of a refusal that are read."""
SHORTEST_KEY = 16
AWAY: Final = frozenset((408, 429, 502, 503, 504))
"""The answers that say that a receiver accepts nothing at the moment, whatever it is sent."""


def send(configuration: Configuration, message: Message) -> None:
    """Post a notification; raises `NotSent` or `ConfigurationError`."""
    url = message.delivery.receiver
    if (entry := configuration.webhook_for(url)) is None:
        fault = "no [[webhooks]] of arkqueue.toml names its host"
        raise ConfigurationError(url, fault, "Add one, or take the receiver away.")
    body = json.dumps(message.document(), ensure_ascii=True, separators=(",", ":")).encode()
    id, now = f"arkqueue_{message.delivery.name}", int(time.time())
    headers = {
        "content-type": "application/json",
        "user-agent": "arkqueue",
        "webhook-id": id,
        "webhook-timestamp": str(now),
        "webhook-signature": f"v1,{signature(key_of(read_key(entry.key_file, f'the key for {entry.url}')), id, now, body)}",
    }
    status, said = within_time(url, lambda: _post(url, body, headers, entry.ca_file))
    if not 200 <= status < 300:
        moved = "; redirects are not followed" if 300 <= status < 400 else ""
        fault = f"answered {status}{moved}" + (f": {one_line(said, 300)}" if said.strip() else "")
        raise NotSent(url, fault, is_silent=status in AWAY)


def key_of(text: bytes) -> bytes:
    """The key in the text of a key file: ``whsec_`` and base64, or any text."""
    prefix = b"whsec_"
    try:
        key = base64.b64decode(text.removeprefix(prefix), validate=True) if text.startswith(prefix) else text
    except binascii.Error:
        raise ConfigurationError("the key of a webhook", "has no base64 after whsec_", "Write it anew.") from None
    if len(key) < SHORTEST_KEY:
        remedy = "Write one: openssl rand -hex 32"
        raise ConfigurationError("the key of a webhook", f"has fewer than {SHORTEST_KEY} bytes", remedy)
    return key


def signature(key: bytes, id: str, timestamp: int, body: bytes) -> str:
    """The signature of a body, which proves that its sender has the key."""
    return base64.b64encode(hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)).decode()


async def _post(url: str, body: bytes, headers: dict[str, str], ca_file: Path | None) -> tuple[int, str]:
    """The status of the answer, and the beginning of its body."""
    # Imported at the first webhook, because many queue managers send none.
    import httpx

    trusted = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
    try:
        async with (
            httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=None, verify=trusted) as client,
            client.stream("POST", url, content=body, headers=headers) as answer,
        ):
            said = b""
            if not answer.is_success:
                async for piece in answer.aiter_raw():
                    said += piece
                    if len(said) >= LONGEST_ANSWER:
                        break
            return answer.status_code, said[:LONGEST_ANSWER].decode("utf-8", "replace")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        fault = f"cannot be reached: {one_line(str(error) or type(error).__name__, 300)}"
        raise NotSent(url, fault, is_silent=True) from None
