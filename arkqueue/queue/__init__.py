"""Every write to shared state, one function for each verb (design 6, 10).

In the order in which things happen: ``archives`` registers and accepts notices, ``ledger`` appends to the ledger and stores graphs, ``triggering`` adds further runs, ``claim`` gives tasks to task
managers, ``finish`` takes their ends, ``schedules`` fires, ``control`` does what people want, ``tokens`` says who may. What follows from a change is worked out in ``graph``.
Nobody else writes.
"""

from arkqueue.queue import archives, claim, control, finish, ledger, schedules, triggering

__all__ = ["archives", "claim", "control", "finish", "ledger", "schedules", "triggering"]
