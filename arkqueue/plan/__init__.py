"""Definitions and what a branch has → the nodes and edges of a run. Pure: no clock, no file, no connection.

``entry`` is what was read of a revision, ``graph`` plans one run, ``globs`` matches paths and branches, ``awaited`` follows what never ran.
"""

from arkqueue.plan.awaited import Awaited, followed_back
from arkqueue.plan.entry import Entry
from arkqueue.plan.globs import matches, matches_branch
from arkqueue.plan.graph import EVERYTHING, Edge, Node, Plan, is_for, names_needed, plan

__all__ = [
    "EVERYTHING",
    "Awaited",
    "Edge",
    "Entry",
    "Node",
    "Plan",
    "followed_back",
    "is_for",
    "matches",
    "matches_branch",
    "names_needed",
    "plan",
]
