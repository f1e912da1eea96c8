"""Configuration: read once, validated whole, frozen, passed down (``settings``, with the receivers of notifications in ``receivers``); how its values are written (``values``)."""

from arkqueue.config.settings import (
    PREFIX,
    Configuration,
    Credentials,
    Docker,
    PersistentMount,
    no_color,
    readable_secrets,
    variables,
)
from arkqueue.config.values import is_address

__all__ = [
    "PREFIX",
    "Configuration",
    "Credentials",
    "Docker",
    "PersistentMount",
    "is_address",
    "no_color",
    "readable_secrets",
    "variables",
]
