"""Finds the run or task that a typed name means, by asking the server. Every command that takes a
name calls this module.
"""

from __future__ import annotations

import shlex
from typing import Any

from arkqueue.cli.client import Client
from arkqueue.errors import Invalid


def find(client: Client, name: str, *, items: bool = False, lists: bool = False) -> Any:
    """The meaning of a name: ``full_name``, the id of the run, and the id of the task (None: the
    name of a run).

    ``items``: the name may be that of an ``item`` of the run (``RUN/*/KEY``), which is refused
    otherwise. ``lists``: the name may be that of a ``list`` (``RUN/TASK/*``).
    """
    found = client.get("/find", name=name)
    if found["list"] is not None and not lists:
        run = found["full_name"].partition("/")[0]
        fault = "is the name of a list, which this command does not take"
        why = f"arkqueue explain {shlex.quote(found['full_name'])}"
        raise Invalid(
            found["full_name"], fault, f"See its items: arkqueue show {run} --items; what they wait for: {why}"
        )
    if found["item"] is not None and not items:
        run = found["full_name"].partition("/")[0]
        fault = "is the name of an item, which this command does not take"
        raise Invalid(found["full_name"], fault, f"Name a task of it: arkqueue show {run} --items")
    return found


def find_run(client: Client, name: str) -> Any:
    """A run with its tasks, by its name."""
    found = find(client, name)
    if found["task"] is not None:
        run = found["full_name"].partition("/")[0]
        raise Invalid(found["full_name"], "is the name of a task, not of a run", f"Its run is {run}.")
    return client.get(f"/runs/{found['run']}")


def find_task(client: Client, name: str) -> Any:
    """A task with its attempts, by its name."""
    found = find(client, name)
    if found["task"] is None:
        tasks = client.get(f"/runs/{found['run']}")["tasks"]
        has = ", ".join(task["full_name"] for task in tasks)
        raise Invalid(found["full_name"], "is the name of a run, not of a task", f"Its tasks: {has}.")
    return client.get(f"/tasks/{found['task']}")
