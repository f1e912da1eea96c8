"""Buttons for the commands that ``explain`` names, each with its verb and the thing that it concerns.
Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from arkqueue.names import as_backfill


@dataclass(frozen=True, slots=True)
class Button:
    """A button. ``act``: the address below ``/-/act`` to which the form is sent; empty for the
    verbs of tasks and runs. ``state``: of a list, only the items in this state. ``force``: the queue
    refuses the retry or the release without this option. ``skip_outdated``: the release waives the
    outdated tasks, which the queue refuses without this option.
    """

    verb: str
    name: str
    words: str
    act: str = ""
    state: str = ""
    force: bool = False
    skip_outdated: bool = False


_VERBS: Final[dict[tuple[str, ...], tuple[str, str]]] = {
    ("retry",): ("retry", "Retry{}"),
    ("retry", "--force"): ("retry", "Retry{} all the same"),
    ("retry", "--from-start"): ("retry", "Retry{}"),
    ("retry", "--force", "--from-start"): ("retry", "Retry{} all the same"),
    ("skip",): ("skip", "Waive{}"),
    ("skip", "--as-completed"): ("skip-as-completed", "Count{} as completed"),
    ("release",): ("release", "Release{}"),
    ("release", "--all"): ("release", "Release{}"),
    ("release", "--force"): ("release", "Release{} all the same"),
    ("release", "--skip-outdated"): ("release", "Release the rest of {it}"),
    ("release", "--all", "--skip-outdated"): ("release", "Release the rest of {it}"),
    ("unhold",): ("unhold", "End the hold of{}"),
    ("resume",): ("resume", "Resume{}"),
    ("refresh",): ("refresh", "Poll now{}"),
    ("sync",): ("sync", "Read {it} now"),
    ("cancel", "--assume-gone"): ("assume-gone", "Count {it} as gone"),
}
"""The commands for which a page has a button, by their verb and options, each with the button's verb
and words. `_words` puts the name of another thing into the words.
"""
_ACTS: Final[dict[tuple[str, ...], tuple[str, str]]] = {
    ("resume", "--lock"): ("resume-lock", "Resume"),
    ("resume", "--worker"): ("resume-worker", "Resume"),
}
"""The commands that a form of the administration pages carries out, in the same way."""


STOP_FORMS: Final = {"accept": "Accept the correction", "rewind": "Rewind"}
"""The verbs of a stopped archive, each with the words that lead to its form on the settings page."""


def buttons_of(commands: Sequence[str], name: str) -> list[Button]:
    """The buttons of the commands that help a task, in their order, without commands that only show
    something. ``name``: the task's name. A button for another thing names this thing.
    """
    found = []
    for command in commands:
        try:
            program, verb, *rest = shlex.split(command)
        except ValueError:
            continue
        if (program, verb) == ("arkqueue", "archive") and len(rest) > 1 and rest[0] in STOP_FORMS:
            found.append(Button(rest[0], rest[1].partition("@")[0], STOP_FORMS[rest[0]]))
            continue
        state = ""
        if "--state" in rest[:-1]:
            at = rest.index("--state")
            _, state = rest[at : at + 2]
            del rest[at : at + 2]
        options = tuple(word for word in rest if word.startswith("--"))
        things = [word for word in rest if not word.startswith("--")]
        if program != "arkqueue" or len(things) > 1:
            continue
        if (verb, *options) == ("resume", "--all") and not things:
            found.append(Button("resume-all", "", "Resume everything", "resume-all"))
        elif things and (known := _VERBS.get((verb, *options))):
            # The button sends --force, whose consequences the next page shows. If the retry also needs
            # --from-start, the refusal offers this option.
            words, force, skip = _words(known[1], things[0], name), "--force" in options, "--skip-outdated" in options
            found.append(Button(known[0], things[0], words, state=state, force=force, skip_outdated=skip))
        elif things and (acts := _ACTS.get((verb, *options))):
            found.append(Button(acts[0], things[0], f"{acts[1]} {things[0]}", acts[0]))
    return found


def nearest(buttons: Sequence[Button]) -> tuple[list[Button], list[Button]]:
    """The buttons without the wider releases, and the wider releases. A release is wider than another
    one if it releases a thing that has the other thing inside: the archive, the backfill, the run, the
    task. People seldom want a wider one.
    """
    releases = [one.name for one in buttons if one.verb == "release"]
    wider = [one for one in buttons if one.verb == "release" and any(_holds(one.name, other) for other in releases)]
    return [one for one in buttons if one not in wider], wider


def _holds(name: str, other: str) -> bool:
    """Whether one thing has another one inside: an archive its runs, a run its tasks."""
    if as_backfill(name):
        return other.partition("@")[0] == name.partition("@")[0] and "/" in other
    return other.startswith((f"{name}@", f"{name}:", f"{name}/"))


def _words(words: str, thing: str, name: str) -> str:
    """The words on a button: without a name for the task of the page, and without the archive for
    another task of it.
    """
    if thing == name:
        return words.format("", it="it")
    other = thing.removeprefix(name.partition("@")[0] + "@")
    return words.format(f" {other}", it=other)
