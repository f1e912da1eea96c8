"""Definitions and what a branch has → the nodes and edges of a run. Pure: no clock, no file, no connection.

``entry`` is what was read of a revision, and how many go into one transaction. ``graph`` plans one run, ``ledger`` drafts all
rows that a transaction adds, ``globs`` matches paths and branches.
"""

from arkqueue.plan.entry import MOST_ROWS, Entry, portions
from arkqueue.plan.globs import matches, matches_branch
from arkqueue.plan.graph import (
    Edge,
    Node,
    Occurrence,
    Plan,
    asks_for_commit_runs,
    gate_name,
    gates_of_list,
    is_for,
    items_needed,
    keys_needed,
    plan,
)
from arkqueue.plan.ledger import Draft, Known, NewIds, generations, ids_needed

__all__ = [
    "MOST_ROWS",
    "Draft",
    "Edge",
    "Entry",
    "Known",
    "NewIds",
    "Node",
    "Occurrence",
    "Plan",
    "asks_for_commit_runs",
    "gate_name",
    "gates_of_list",
    "generations",
    "ids_needed",
    "is_for",
    "items_needed",
    "keys_needed",
    "matches",
    "matches_branch",
    "plan",
    "portions",
]
