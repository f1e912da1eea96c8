"""PostgreSQL for those above: connections, wake-ups, named SQL, the schema's versions, and an embedded server. It knows no table."""

from arkqueue.db.connections import Connection, Database, Overdue
from arkqueue.db.wakeups import Wakeups

__all__ = ["Connection", "Database", "Overdue", "Wakeups"]
