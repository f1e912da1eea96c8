"""The configuration: read once, validated as a whole, frozen and passed down (``settings``, with
``containers``, the receivers of notifications in ``receivers``, and sign-in in ``openid``); the
formats of its values (``values``); and warnings of secrets that everybody can read (``secrets``).
"""

from arkqueue.config.containers import Docker, PersistentMount
from arkqueue.config.secrets import readable_secrets
from arkqueue.config.settings import Configuration, Credentials, variables
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
