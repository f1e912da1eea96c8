"""The command line (design 8). The module of a command is imported only when the command is used,
so that ``--help`` is fast.

Commands for archives, runs and tasks use only the HTTP API. ``serve`` and its single roles,
``demo``, ``migrate``, ``check`` and ``hook`` work on the host where they are called. Exit codes: 0;
1: the answer is no; 2: wrong usage; 3: the server cannot be reached. No traceback is ever shown.
"""

from arkqueue.cli.program import COMMANDS, arkqueue, beginning, main

__all__ = ["COMMANDS", "arkqueue", "beginning", "main"]
