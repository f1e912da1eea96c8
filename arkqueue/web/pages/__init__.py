"""The pages: all archives at a glance, why something waits, and the buttons that help (design 8).

    visitor    the visitor of a page: sign-in, forms that no other site can send, hosts
    answer     templates, headers, JSON and errors
    overview, archive, run, task, backfill    what each page shows
    grid       the rows, columns and sentences of an archive's page
    log        the log of an attempt, as lines and as a file
    reporting  one report of a run
    drawing    the graph of a run as SVG
    search     the search by a few words
    administration, administering    locks, schedules, task managers, tokens, audit log, settings;
               and the actions of their forms
    feeds      badge and feed of an archive
    definition the frozen definition of a task as text
    forms      the fields of a form, and the options of a button
    acting, filling    the actions of the buttons; the action of a backfill's form
    preview, refusals  what an action would do; the buttons that a refusal offers
    routes     the addresses

A page shows the same as the API, through the same views, and acts through the same verbs. It needs
no JavaScript for reading and acting. The package is loaded when somebody first requests a page: a
server of which only the API is used needs no memory for it.
"""
