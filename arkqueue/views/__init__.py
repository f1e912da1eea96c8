"""Every read made for people: the API, the command line and later the pages show what is asked here (design 10).

Nothing here writes, locks or waits. What is answered is data in the design's words, ready to be sent as JSON. A name is found by ``find``; "why is this
not running?" is answered by ``explain``.
"""
