"""Measures arkqueue on real parts, next to programs that do parts of the same job.

Run ``make bench``, or ``python -m benchmarks --help``.

    bench         a figure, its targets, and what all rows share: sizes, PostgreSQL, folders
    __main__      chooses rows, runs them, prints the table, writes the JSON
    peers         other queues in their own environments, and the programs that drive them
    lines         archives without repositories: a queue alone, planned, claimed and finished
    history       a database with a long history, made by a few statements
    servers       a real server with real repositories
    ingesting     an hour of the example ``ingest``
    programs      rows that are programs of their own: ``containers``, ``workspaces``

The rows are ``commits`` (1, 2, 4), ``draining`` (3, 6, 7, 13), ``aging`` (5), ``hooks`` (8),
``memory`` (9), ``output`` (10), ``reading`` (11), ``starting`` (12), ``growth`` (14), ``attacks``
(15), ``canceling`` (16), ``purging`` (17), ``locks`` (18), ``priorities`` (19), ``large_lists``
(20), ``attachments`` (24), and on top of ``browsing``: ``pages`` (21), ``open_pages`` (22) and
``in_browser`` (23). ``processes`` measures the process executor alone. Nothing in ``arkqueue``
imports this package. Two tests do: tests/system/test_benchmarks.py and tests/db/test_plans.py.
"""
