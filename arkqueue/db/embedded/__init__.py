"""The embedded PostgreSQL server in arkqueue's home folder: its programs (``programs``), the
processes that use it (``users``), and its start and stop (``server``).
"""
