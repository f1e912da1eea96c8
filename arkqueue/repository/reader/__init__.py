"""Reads repositories in processes of their own (``client``, ``process``), and makes entries for the
ledger from revisions (``entries``).
"""
