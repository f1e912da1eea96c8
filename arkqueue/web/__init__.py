"""The HTTP API: every read and every verb, for hooks, the command line and programs (design 7).

A request is admitted by its token (``access``), answered by one function that asks ``views`` or calls a verb of ``queue``, and every error becomes a problem
document (``problems``). Functions are synchronous and run in the framework's threads; only who follows a log waits in the event loop.
"""

from arkqueue.web.app import create_app
from arkqueue.web.server import ApiServer, run_api

__all__ = ["ApiServer", "create_app", "run_api"]
