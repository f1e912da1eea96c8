"""PostgreSQL for the layers above: connections, wake-ups, named SQL, the versions of the schema, and an embedded server. This package knows no table."""

from arkqueue.db.connections import Connection, Database, Overdue
from arkqueue.db.wakeups import Wakeups

__all__ = ["Connection", "Database", "Overdue", "Wakeups"]
