"""Prepares libsvn for this process. Its settings have to be made before its first use, and so at
the import of this module.

libsvn caches data of local repositories for the whole process, by path and UUID. After a backup is
restored, it would still answer from the lost revisions, so that cache is switched off. The OpenSSL
in subvertpy's wheel looks for certificate authorities where Red Hat keeps them, and would trust
nobody on other systems. In the locale C, in which services are started, Python takes paths for
UTF-8, and libsvn for ASCII. Called by `subversion` only.
"""

from __future__ import annotations

import contextlib
import ctypes
import locale
import os
import ssl
import sys

# Not subvertpy.ra: its RemoteAccess only dispatches by the scheme, with a function that Python is
# about to remove.
from subvertpy import _ra as ra

__all__ = ["ra"]


class _CacheConfiguration(ctypes.Structure):
    """svn_cache_config_t"""

    _fields_ = (("size", ctypes.c_uint64), ("file_handles", ctypes.c_size_t), ("single_threaded", ctypes.c_int))


def _switch_off_process_cache() -> None:
    """Switch the cache off. It must happen before the process opens its first local repository."""
    library = ctypes.CDLL(ra.__file__)
    library.svn_cache_config_get.restype = ctypes.POINTER(_CacheConfiguration)
    now = library.svn_cache_config_get().contents
    library.svn_cache_config_set(ctypes.byref(_CacheConfiguration(0, now.file_handles, now.single_threaded)))


def _trust_what_this_host_trusts() -> None:
    """Let OpenSSL find this host's certificate authorities. If the environment names some, nothing
    changes.
    """
    trusted = ssl.get_default_verify_paths()
    for name, path in ((trusted.openssl_cafile_env, trusted.cafile), (trusted.openssl_capath_env, trusted.capath)):
        if path:
            os.putenv(name, path)


def _take_paths_as_python_does() -> None:
    if sys.getfilesystemencoding() == "utf-8" and locale.nl_langinfo(locale.CODESET) != "UTF-8":
        with contextlib.suppress(locale.Error):  # this system has no such locale
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")


_take_paths_as_python_does()
_switch_off_process_cache()
_trust_what_this_host_trusts()
