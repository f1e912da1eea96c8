"""What every long-running role needs and no table knows: a loop with its wake-up, the home folder and its lock, names of accounts, a limit for those who wait.

``home`` holds the home folder and its lock, ``accounts`` the names of the host's users, ``wakeup`` what a loop waits for, ``loop`` the loop itself,
``admission`` how many may wait for one thing.
"""
