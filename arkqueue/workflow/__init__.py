"""Workflow files to definitions and faults (design 3): ``source`` → ``tasks`` → ``check``, text to nodes to tasks to a whole.

Pure: no file, clock or connection, so equal files give equal results and a caller may keep them by content. Never raises for
what a committer wrote; that is what faults are for. Called by the queue manager for each revision, by the checking hooks and by
``arkqueue check``.
"""

from arkqueue.workflow.format import json_schema
from arkqueue.workflow.frozen import from_json, to_json
from arkqueue.workflow.lists import EMPTY, digest_of
from arkqueue.workflow.parsing import parse

__all__ = ["EMPTY", "digest_of", "from_json", "json_schema", "parse", "to_json"]
