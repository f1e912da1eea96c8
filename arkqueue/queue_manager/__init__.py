"""The queue manager: reads repositories and plans their revisions, fires schedules, resumes
deferred tasks, ends attempts whose leases are over.

There is one loop for each duty. Any number of queue managers may work on one database: the ledger
and the schedules move on by compare-and-set, and locks and states guard everything else. No queue
manager runs the program of a task.
"""

from arkqueue.queue_manager.manager import QueueManager

__all__ = ["QueueManager"]
