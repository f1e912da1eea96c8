"""Configuration: read once, validated whole, frozen, passed down (``settings``); how its values are written (``values``)."""

from arkqueue.config.settings import (
    LONGEST_RENEWAL,
    PREFIX,
    Configuration,
    Credentials,
    Docker,
    PersistentMount,
    is_address,
    no_color,
    variables,
)

__all__ = [
    "LONGEST_RENEWAL",
    "PREFIX",
    "Configuration",
    "Credentials",
    "Docker",
    "PersistentMount",
    "is_address",
    "no_color",
    "variables",
]
