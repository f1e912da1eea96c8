"""The task manager: claims ready tasks, runs them, reports how they ended, and obeys requests to
stop (design 2, 6, 9).

    claim → prepare → run → record → clean up          one ``Attempt`` passes through all of them

    claiming     one thread: as many tasks as there are free slots,
                 at a bell or once a second                               (``manager``)
                 while this host cannot start tasks: now and then one     (``fitness``)
    working      one thread for each slot: prepares, runs, cleans up      (``attempt``)
    recording    two threads, each for a share of the archives: first
                 the logs, then all waiting ends in one transaction       (``recorder``, ``logs``)
                 the transaction also claims the tasks that these ends
                 make ready, unless the claiming thread is working        (``manager``)
    keeping      three threads: renew leases, listen for requests to
                 stop, watch the clock                                    (``leases``)
                 one thread: adopts containers that no attempt of this
                 task manager runs in                                     (``adoption``)

A task manager never changes the state of a task: it reports an outcome, and the queue decides what
the outcome means. If a task manager is killed, its guard processes end its process tasks. The next
task manager of the same home folder ends those that the guards could not end, and reports them to
the queue at once; without a next task manager, their leases lapse. Containers go on, also after an
ordinary stop, and the next task manager adopts them.
"""

from arkqueue.task_manager.manager import TaskManager

__all__ = ["TaskManager"]
