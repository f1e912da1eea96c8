"""Turns workflow files into definitions or faults (design 3): ``source`` reads text into nodes,
``tasks`` makes tasks from nodes, and ``check`` checks all tasks together.

The package is pure: it uses no file, clock or connection. So equal files give equal results, and a
caller may cache the results by content. It never raises because of what a committer wrote: faults
report that. Called by the queue manager for each revision, by the checking hooks and by
``arkqueue check``. They import ``parsing`` themselves: a task manager parses nothing, and
``parsing`` loads what reads YAML.
"""

from arkqueue.workflow.frozen import from_database, from_json, to_json
from arkqueue.workflow.lists import EMPTY, digest_of

__all__ = ["EMPTY", "digest_of", "from_database", "from_json", "to_json"]
