"""Registers, changes and rewinds archives: reads the repository, then writes the ledger. The API
and the command line call it.
"""
