"""libsvn as this process needs it; what has to be said to it comes before its first use, and so at the import of this module.

libsvn caches what it read from local repositories for the whole process, by path and UUID: after a backup was restored
it would go on to answer from the lost future. So that cache is switched off. And the OpenSSL in subvertpy's wheel looks
for certificate authorities where Red Hat keeps them; elsewhere it would trust nobody. And in the locale C, in which services
are started, Python takes paths for UTF-8, and libsvn for ASCII. Called by `subversion` only.
"""

from __future__ import annotations

import contextlib
import ctypes
import locale
import os
import ssl
import sys

# Not subvertpy.ra: its RemoteAccess only looks at the scheme, by a function that Python is about to drop.
from subvertpy import _ra as ra

__all__ = ["ra"]


class _CacheConfiguration(ctypes.Structure):
    """svn_cache_config_t"""

    _fields_ = (("size", ctypes.c_uint64), ("file_handles", ctypes.c_size_t), ("single_threaded", ctypes.c_int))


def _switch_off_process_cache() -> None:
    """It must happen before the process opens its first local repository."""
    library = ctypes.CDLL(ra.__file__)
    library.svn_cache_config_get.restype = ctypes.POINTER(_CacheConfiguration)
    now = library.svn_cache_config_get().contents
    library.svn_cache_config_set(ctypes.byref(_CacheConfiguration(0, now.file_handles, now.single_threaded)))


def _trust_what_this_host_trusts() -> None:
    """Where the environment names authorities, these are the ones that are found, and nothing changes."""
    trusted = ssl.get_default_verify_paths()
    for name, path in ((trusted.openssl_cafile_env, trusted.cafile), (trusted.openssl_capath_env, trusted.capath)):
        if path:
            os.putenv(name, path)


def _take_paths_as_python_does() -> None:
    if sys.getfilesystemencoding() == "utf-8" and locale.nl_langinfo(locale.CODESET) != "UTF-8":
        with contextlib.suppress(locale.Error):  # a system without it has none that would do
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")


_take_paths_as_python_does()
_switch_off_process_cache()
_trust_what_this_host_trusts()
