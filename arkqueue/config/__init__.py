"""The configuration: read once, validated as a whole, frozen and passed down (``settings``, with
the receivers of notifications in ``receivers``); and the formats of its values (``values``).
"""

from arkqueue.config.settings import (
    Configuration,
    Credentials,
    Docker,
    PersistentMount,
    readable_secrets,
    variables,
)
from arkqueue.config.values import is_address
from arkqueue.config_sources import PREFIX

__all__ = [
    "PREFIX",
    "Configuration",
    "Credentials",
    "Docker",
    "PersistentMount",
    "is_address",
    "readable_secrets",
    "variables",
]
