"""The executor of processes (``executor``). A ``guard`` beside each task ends its whole process
tree; ``leftovers`` finds processes that no guard could end.
"""
