"""The calls of the HTTP API (design 7), one file for each subject."""
