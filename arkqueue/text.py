"""Text of others (logs, commit messages, names), made visible for a terminal or a page. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection

LONGEST = 500
"""The most characters of a line of others, in a table that no terminal cuts."""
MOST_PAIRS = 500_000
"""The most pairs of characters that are compared for one suggestion, which takes about 0.2 s."""

# C0 except tab and line feed, DEL, C1, characters that change the direction of writing, lone
# surrogates, and line breaks that only Unicode knows. XML allows neither U+FFFE nor U+FFFF: a feed
# with one of them could not be read.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str) -> str:
    """A text in which control characters are visible and have no effect: an escape is ``\\x1b``.
    Line breaks and tabs stay.
    """
    return text if text.isprintable() else _CONTROL.sub(_escape, text.replace("\r\n", "\n"))


def name_visible(name: str) -> str:
    """A name (of a file, a branch) with visible control characters, line breaks and tabs: the part
    after a line break must not look like a line of arkqueue.
    """
    return visible(name.replace("\r\n", "\\r\\n").replace("\n", "\\n").replace("\t", "\\t"))


def on_one_line(text: str) -> str:
    """A text with visible control characters, and with a space for each line break, so that its
    lines do not look like lines of arkqueue.
    """
    return visible(" ".join(text.split()))


def one_line(text: str, width: int = LONGEST) -> str:
    """The first line of a text, visible and cut to a width."""
    if len(text) <= width and text.isprintable():
        return text.strip()
    # Also cut before that: a commit message may have megabytes.
    line = visible(text.strip().partition("\n")[0].rstrip("\r")[: width + 1].replace("\t", " "))
    return line if len(line) <= width else line[: max(width - 1, 0)] + "…"


def shortened(text: str, width: int) -> str:
    """A text, without its middle if it is longer than a width: names differ at their ends."""
    head = (width - 1) // 2
    return text if len(text) <= width else f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def similar(word: str, names: Collection[str], most: int = 3) -> list[str]:
    """The names that are similar to a word, the nearest first; none for a word of more than `LONGEST`
    characters. If there are too many names, only those are compared that have most of the word's
    beginning and end.
    """
    from difflib import get_close_matches

    if len(word) > LONGEST:
        return []
    pairs = len(word) * sum(map(len, names))
    if pairs > MOST_PAIRS:
        names = sorted(names, key=lambda name: _common(word, name), reverse=True)[: len(names) * MOST_PAIRS // pairs]
    return get_close_matches(word, names, most)


def _common(word: str, name: str) -> int:
    """The number of characters that a word and a name have in common at their beginning and end."""
    return _at_beginning(word, name) + _at_beginning(word[::-1], name[::-1])


def _at_beginning(word: str, name: str) -> int:
    both = zip(word, name, strict=False)
    return next((at for at, (one, other) in enumerate(both) if one != other), min(len(word), len(name)))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def files_in_words(files: int, size: int) -> str:
    """A number of files, and their size in bytes."""
    return f"{files:,} file{'' if files == 1 else 's'}, {size / 2**20:,.1f} MiB"
