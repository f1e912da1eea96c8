"""Writes and sends the notifications that `queue.notifications` has put into the outbox. The queue
manager calls it.
"""
