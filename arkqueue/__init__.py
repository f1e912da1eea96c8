"""arkqueue: the queue that runs automations on versioned archives."""

__version__ = "0.1.0"
