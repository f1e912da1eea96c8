"""The executor of containers (``executor``), which can outlive their task manager. It calls the
engine through ``engine``.
"""
