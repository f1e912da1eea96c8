"""Plans the nodes and edges of a run from definitions and the earlier tasks of a branch. Pure: no
clock, no file, no connection.

``entry`` has the revisions to append, and the portions for one transaction each. ``graph`` plans
one run, with its ``edges``. ``ledger`` drafts all rows that a transaction adds. ``globs`` matches
paths and branches.
"""

from arkqueue.plan.edges import Edge, Occurrence, gate_name, gates_of_list
from arkqueue.plan.entry import Entry, portions
from arkqueue.plan.globs import matches, matches_branch
from arkqueue.plan.graph import (
    Node,
    Plan,
    asks_for_commit_runs,
    is_for,
    items_needed,
    keys_needed,
    plan,
    waits_for_any_end,
)
from arkqueue.plan.items import BEGINNING, MOST_ROWS, Lists, Portion, next_portion, part_of
from arkqueue.plan.ledger import Draft, Known, NewIds, generations, ids_needed

__all__ = [
    "BEGINNING",
    "MOST_ROWS",
    "Draft",
    "Edge",
    "Entry",
    "Known",
    "Lists",
    "NewIds",
    "Node",
    "Occurrence",
    "Plan",
    "Portion",
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
    "next_portion",
    "part_of",
    "plan",
    "portions",
    "waits_for_any_end",
]
