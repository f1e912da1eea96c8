"""The references that a working copy follows: externals, submodules and files of Git LFS, from
addresses that the archive allows.

``addresses`` parses URLs strictly and compares them. ``allowance`` says what one working copy may
follow, and for how long. The two kinds of repositories fetch: ``git/submodules``, ``git/lfs``,
``subversion/following``.
"""
