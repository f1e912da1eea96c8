"""The gateway: everything that a task manager may ask of the queue (design 2, 10).

A task manager reads and writes shared state through one object, a ``Gateway``, and imports nothing of ``queue``, ``views`` or ``db``. The import
contract holds that. So a task manager that has no way to PostgreSQL needs another gateway, and no other task manager.

    register, unregister, expire    who is there, and what an earlier process of this host has left
    claim, live, adopt, hand_back   getting attempts, and giving them back
    definitions, inputs, base       what attempts are made from
    installation                    what containers are labelled with
    reserve, started, finish        the life of an attempt
    renew, stops, bell              leases, requests to stop, wake-ups
    append_log, cut_log             logs

``protocol`` says what each call promises; ``sql`` keeps the promises by SQL, through the verbs of ``queue``. Values are frozen dataclasses of
``model`` and plain JSON: nothing that goes through a gateway belongs to a database, so that it can go through a network as well.

The module ``sql`` is not imported here: only who puts the roles together (``cli``) knows which gateway there is.
"""

from arkqueue.gateway.protocol import Gateway, Opener, Topic

__all__ = ["Gateway", "Opener", "Topic"]
