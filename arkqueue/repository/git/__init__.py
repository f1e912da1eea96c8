"""Git repositories: read through libgit2 (``repository``, ``history``, ``commits``), fetched and cloned by git itself (``program``, ``mirror``)."""
