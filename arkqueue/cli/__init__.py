"""The command line (design 8). Each command lives in a module that is imported when the command is used, so that ``--help`` is quick.

Commands that look after archives, runs and tasks talk to the HTTP API and to nothing else; ``serve`` and its single roles, ``demo``, ``migrate``, ``check`` and
``hook`` work where they are called. Exit codes: 0; 1 the answer is no; 2 usage; 3 the server cannot be reached. Nobody is shown a traceback.
"""

from arkqueue.cli.program import COMMANDS, arkqueue, beginning, main

__all__ = ["COMMANDS", "arkqueue", "beginning", "main"]
