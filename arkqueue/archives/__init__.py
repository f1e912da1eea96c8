"""Registers, changes and rewinds archives: asks the repository, then writes the ledger. The API and the command line call it."""
