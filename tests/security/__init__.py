"""Attacks, in the words of the attacker; ``docs/security.md`` names the test of each promise."""
