"""The queue manager: reads repositories and plans their revisions, fires schedules, takes up deferred tasks, lets leases lapse.

One loop for each duty; each turn is a sentence of the design. Any number of queue managers may do this on one database: the ledger is filled by
compare-and-set, schedules move on by compare-and-set, and everything else is guarded by locks and states. None of them knows a task's program.
"""

from arkqueue.queue_manager.manager import QueueManager

__all__ = ["QueueManager"]
