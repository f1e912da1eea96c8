"""Refusals as pages. The remedy of a refusal may name an option of the command line: the page has a
button for that option. A verb on many tasks may be refused for some: the page names them.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from arkqueue.errors import ArkqueueError, Conflict, Forbidden
from arkqueue.names import EVERY_TASK, archive_in
from arkqueue.queue.done import Done
from arkqueue.views.naming import task_names
from arkqueue.web.access import Caller
from arkqueue.web.pages.answer import Shown
from arkqueue.web.pages.forms import Form

MOST_NAMED: Final = 20
"""The most refused tasks that are named."""
_COMMANDS: Final = {"retry": "retry", "retry-from": "retry", "skip-as-completed": "skip", "release": "release", "trigger": "trigger"}  # fmt: skip
"""The verbs that can be forced, and their names on the command line."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A button that overrides a refusal. ``option``: the field that it sends as yes."""

    option: str
    words: str
    means: str


FORCE: Final = Offer("force", "Do it all the same", "Like --force: also if it is out of date, or later revisions have already run.")  # fmt: skip
FROM_START: Final = Offer("from_start", "Run its command again, too", "Like --from-start: the command runs again, and may repeat its effects.")  # fmt: skip
SKIP_OUTDATED: Final = Offer("skip_outdated", "Waive what is out of date, and release the rest", "Like --skip-outdated.")  # fmt: skip


def offers(error: ArkqueueError, name: str, verb: str) -> list[Offer]:
    """The buttons that override the refusal of a verb on a thing. The remedy must name them for
    this verb and this thing.
    """
    remedy = error.remedy
    command = _COMMANDS.get(verb)
    if command is None or not isinstance(error, Conflict):
        return []
    found = [FORCE] if "use --force" in remedy and ("@" in name or verb != "retry") else []
    for words in map(_words, remedy.split("arkqueue ")[1:]):
        if len(words) > 2 and words[0] == command and _is_of(words[1], name):
            found += [one for one, option in ((FORCE, "--force"), (FROM_START, "--from-start")) if option in words]
        elif words[:1] == ["retry"] == [verb] and len(words) > 2 and _is_inside(words[1], name) and "--force" in words:
            found.append(FORCE)  # but no command of a task that is not named runs a second time
    if verb == "release" and "--skip-outdated" in remedy:
        found.append(SKIP_OUTDATED)
    return list(dict.fromkeys(found))


def _words(command: str) -> list[str]:
    """The words of a command in a sentence."""
    try:
        words = shlex.split(command)
    except ValueError:
        return []
    return [word.rstrip(".,;") for word in words]


def _is_of(named: str, name: str) -> bool:
    """Whether a command names a thing: the thing itself, or the archive for which a run of it is
    made.
    """
    return named in (name, archive_in(name))


def _is_inside(named: str, name: str) -> bool:
    """Whether a command names a task of a run, of an item or of a list, when the verb is meant for all
    of them.
    """
    run, of_item, item = name.partition(f"/{EVERY_TASK}/")
    if of_item:
        return named.startswith(f"{run}/") and named.endswith(f"/{item}")
    whole = name.removesuffix(EVERY_TASK) if name.endswith(f"/{EVERY_TASK}") else f"{name}/"
    return "@" in name and named.startswith(whole)


def refusal(error: Conflict, form: Form, options: list[Offer], back: str) -> Shown:
    """A refusal, and the refused form again, with a button for each offer. ``back``: the page of the
    form.
    """
    fields = form.fields("form", "sure", *(one.option for one in options))
    return Shown("refused.html", {"error": error, "status": 409, "offers": options, "_fields": fields, "back": back})  # fmt: skip


REMOVALS: Final = {"purge-log": "log", "purge-outputs": "outputs"}
"""The verbs that remove data of attempts, and the kind of data."""
LONG: Final = 200
"""The length from which a text is shown again in several lines."""
_INPUTS: Final[dict[str, dict[str, str]]] = {
    **{
        verb: {"text": "Why? (kept in the audit log)"}
        for verb in ("hold", "unhold", "release", "pause", "pause-lock", "pause-all", "drain")
    },
    **{verb: {"text": "Why? (others will see it)"} for verb in REMOVALS},
    "note": {"text": "Note"},
    "prioritize": {"text": "Priority, from 0 to 1000"},
    "set-lock": {"lock": "Lock", "capacity": "Tasks at once (empty: any number)"},
    "accept": {"revision": "Revision"},
    "rewind": {"revision": "Revision", "branch": "Branch (empty: the main one)"},
    "waive": {"task": "Task", "revision": "Up to revision", "branch": "Branch (empty: the main one)"},
}
"""The fields in which a person writes, and their labels, by the verb of the form."""


@dataclass(frozen=True, slots=True)
class Input:
    """A field of a refused form, with its label and the text of the person."""

    name: str
    label: str
    value: str
    is_long: bool


def filled_again(action: str, form: Form) -> Callable[[], Shown] | None:
    """The page of a refused form, with its input, to be corrected and sent again to ``action``.
    None: nobody writes anything in this form.
    """
    labels = _INPUTS.get(form["verb"], {})
    written = {name: label for name, label in labels.items() if form.has(name)}
    if not written:
        return None
    inputs = [
        Input(name, label, text := form[name], is_long=len(text) > LONG or "\n" in text)
        for name, label in written.items()
    ]
    # Without `sure`: a form that was refused is shown with its consequences before it acts.
    hidden = form.fields("form", "sure", *written)
    names = {"_form": inputs, "_action": action, "_fields": hidden}
    return lambda: Shown("error.html", names)


@dataclass(frozen=True, slots=True)
class Overruled:
    """The refusal that a verb would meet without its options. ``plain``: the verb as a noun.
    ``is_whole``: False if the verb would act on other tasks.
    """

    plain: str
    why: Conflict | Forbidden
    is_whole: bool = True


def overruled(plain: str, propose: Callable[[], object]) -> Overruled | None:
    """The refusal that a forced run overrules; None: there is none. ``propose``: proposes the run
    without force.
    """
    try:
        propose()
    except (Conflict, Forbidden) as why:
        return Overruled(plain, why)
    return None


@dataclass(frozen=True, slots=True)
class RefusedTask:
    """A task that was refused, and why."""

    task: str
    reason: str
    remedy: str


def refused_tasks(caller: Caller, done: Done) -> list[RefusedTask]:
    """The first tasks that were refused."""
    some = done.refused[:MOST_NAMED]
    names = task_names(caller.session, [one.task for one in some])
    return [RefusedTask(names.get(one.task, one.why.thing), one.why.fault, one.why.remedy) for one in some]


def offers_of(done: Done, name: str, verb: str) -> list[Offer]:
    """The buttons that override the refusals of a verb on many tasks, each once."""
    found = [offer for one in done.refused for of in (name, one.why.thing) for offer in offers(one.why, of, verb)]
    return list(dict.fromkeys(found))


def partly(caller: Caller, done: Done, form: Form, back: str) -> Shown:
    """The page of a verb on many tasks: the number of tasks on which it acted, and the refused
    tasks.
    """
    return Shown(
        "partly.html",
        {
            "name": form["name"],
            "done": len(done.tasks) + len(done.skipped),
            "refused": refused_tasks(caller, done),
            "count": len(done.refused),
            "back": back,
        },
    )
