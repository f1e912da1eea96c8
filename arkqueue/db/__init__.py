"""The access to PostgreSQL for the packages above: connections, wake-ups, named SQL, the versions
of the schema, and an embedded server. This package does not know the tables.
"""

from arkqueue.db.connections import Connection, Database, Overdue
from arkqueue.db.wakeups import Wakeups

__all__ = ["Connection", "Database", "Overdue", "Wakeups"]
