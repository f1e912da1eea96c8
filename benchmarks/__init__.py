"""How fast arkqueue is, beside what does parts of the same job, on real parts: ``make bench``, or ``python -m benchmarks --help``.

    bench         a measured figure, its targets, and what every row stands on: sizes, a PostgreSQL, a folder
    __main__      chooses rows, runs them, prints the table, writes the JSON
    peers         other queues in environments of their own, and the programs that drive them
    lines         archives without repositories: a queue alone, planned, claimed and finished
    history       a database with a long past, made by a few statements
    servers       a real server with real repositories
    ingesting     an hour of the example ``ingest``
    programs      rows that are programs of their own: ``containers``, ``workspaces``

The rows are ``commits`` (1, 2, 4), ``draining`` (3, 6, 7, 13), ``aging`` (5), ``hooks`` (8), ``memory`` (9), ``output`` (10), ``reading`` (11), ``starting`` (12) and ``pages`` (21), ``open_pages`` (22) and ``in_browser`` (23), which stand on ``browsing``. ``processes`` looks
at the process executor alone. Nothing in ``arkqueue`` needs any of this; of ``tests``, the one of the suite itself and that of the plans do.
"""
