"""The executor of containers (``executor``), which can outlive their task manager; it asks the engine through ``engine``."""
