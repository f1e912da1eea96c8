"""Attacks from the attacker's view. ``docs/security.md`` names the test of each promise."""
