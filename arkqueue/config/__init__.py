"""Configuration: read once, validated whole, frozen, passed down (``settings``); how its values are written (``values``)."""

from arkqueue.config.settings import (
    PREFIX,
    Configuration,
    Credentials,
    Docker,
    PersistentMount,
    is_address,
    no_color,
    readable_secrets,
    variables,
)

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
