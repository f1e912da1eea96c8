"""Notifications are written and sent: what `queue.notifications` has put into the outbox. The queue manager calls it."""
