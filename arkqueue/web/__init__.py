"""The HTTP API: every read and every verb, for hooks, the command line and programs (design 7).

A request is admitted by its token (``access``), and answered by one function that calls ``views``
or a verb of ``queue``. Every error becomes a problem document (``problems``). The functions are
synchronous and run in the framework's threads; only followers of logs wait in the event loop.
"""

from arkqueue.web.app import create_app
from arkqueue.web.server import ApiServer, run_api

__all__ = ["ApiServer", "create_app", "run_api"]
