"""``python -m arkqueue`` is the command ``arkqueue``."""

from arkqueue.cli import main

if __name__ == "__main__":
    main()
