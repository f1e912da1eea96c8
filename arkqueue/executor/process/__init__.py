"""The executor of processes (``executor``): beside each task a ``guard``, which ends its whole tree; ``leftovers`` finds what no guard could end."""
