"""Subversion repositories, read through libsvn's remote access layer (``repository``, ``access``, ``library``)."""
