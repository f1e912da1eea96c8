"""Executors: each controls the life of one attempt: start it, follow its output, wait, stop, clean
up (design 9).

This package is the task manager's interface to executors. ``process`` runs a task as processes of
this host, beside ``guard``, the small program that ends whole process trees. ``docker`` runs it in
a container, which can outlive the task manager. An executor knows no database and decides nothing:
not the meaning of an exit code, and not when a task has taken too long.
"""

from arkqueue.executor.protocol import (
    ATTEMPT_LABEL,
    DEFAULT_SHELL,
    SHELL,
    TASK_ID_LABEL,
    TASK_LABEL,
    Container,
    Ended,
    Executor,
    Mount,
    Program,
    Running,
    Sink,
    argv_for,
    check_texts,
)
from arkqueue.model import Layer

__all__ = [
    "ATTEMPT_LABEL",
    "DEFAULT_SHELL",
    "SHELL",
    "TASK_ID_LABEL",
    "TASK_LABEL",
    "Container",
    "Ended",
    "Executor",
    "Layer",
    "Mount",
    "Program",
    "Running",
    "Sink",
    "argv_for",
    "check_texts",
]
