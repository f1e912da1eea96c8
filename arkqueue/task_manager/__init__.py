"""The task manager: claims ready tasks, runs them, reports how they ended, and obeys requests to stop (design 2, 6, 9).

    claim → prepare → run → record → clean up          one ``Attempt`` passed along

    claiming     one thread: as many tasks as there are free slots, at a bell or once a second       (here)
                 one at times, where this host could start none                                      (``fitness``)
    working      one thread for each slot: prepare, run, clean up                                    (``attempt``)
    recording    two threads, archives shared out: all ends at hand in one transaction, logs before  (``recorder``, ``logs``)
                 it claims, too, what these ends made ready, unless the claiming thread is at work   (here)
    keeping      three threads: renew leases, hear requests to stop, watch the clock                 (``leases``)
                 one thread: containers that are in nobody's hands                                   (``adoption``)

It never moves a task by itself: an outcome is reported, and the queue decides what it means. When it is gone without a word, its guard processes end
its process tasks; the next task manager of the same home (``home``) ends what they could not, and tells the queue so at once; else the leases lapse. Its
containers go on, also when it is stopped in order, and the next task manager adopts them.
"""

from arkqueue.task_manager.manager import TaskManager

__all__ = ["TaskManager"]
