"""The pages: every archive at a glance, why something waits, and the buttons that help (design 8).

    visitor    who looks: sign-in, forms that no other site can send, hosts
    answer     templates, headers, JSON and errors
    overview, archive, run, task, backfill    what each page shows
    grid       the rows, columns and sentences of an archive's page
    log        the log of an attempt, as lines and as a file
    reporting  one report of a run
    drawing    the graph of a run as SVG
    search     what is looked for by a few words
    administration, administering    locks, schedules, task managers, tokens, audit log, settings; what their forms do
    feeds      badge and feed of an archive
    definition the frozen definition of a task as text
    forms      the fields of a form, and how a button is meant
    acting, filling    what the buttons do; what the form of a backfill does
    preview, refusals  what an action would do; what a refusal offers
    routes     the addresses

A page shows what the API shows, by the same views, and acts by the same verbs. It needs no JavaScript to read and to act.
Loaded when somebody first asks for a page: a server whose API alone is used does not pay for it.
"""
