"""Every write to shared state is a verb of this package, one function each (design 6, 10). Nothing
else writes.

The modules, in the order in which things happen: ``archives`` registers archives and accepts
notices. ``ledger`` appends to the ledger and stores graphs. ``triggering`` adds further runs.
``claim`` gives tasks to task managers. ``finish`` records how attempts ended. ``schedules`` fires
schedules. ``control`` does what people ask for. ``tokens`` says who may do what. ``graph`` works
out what follows from a change.
"""

from arkqueue.queue import archives, claim, control, finish, ledger, schedules, triggering

__all__ = ["archives", "claim", "control", "finish", "ledger", "schedules", "triggering"]
