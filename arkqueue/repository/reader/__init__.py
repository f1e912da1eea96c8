"""From revisions in a repository to entries for the ledger (``entries``)."""
