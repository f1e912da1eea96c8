"""All reads made for people: the API, the command line and the pages show what this package returns
(design 10).

Nothing here writes, locks or waits. The results are data in the design's words, ready to be sent as
JSON. ``find`` resolves names; ``explain`` answers why something is not running.
"""
