"""The parts that every long-running role needs and that know no table.

``home`` holds the home folder and its lock, ``accounts`` the names of the host's users, ``wakeup``
the bells for which a loop waits, ``loop`` the loop itself, and ``admission`` limits how many
callers may wait for one thing.
"""
