"""One file's nodes to its tasks: defaults merged in, every field judged by the format, every fault put where it stands.

A task is judged as a whole even where parts of it are wrong: what is faulty is left out, so that its edges can still be
checked against the other tasks. Called by ``arkqueue.workflow.parse``; ``check`` looks at what comes out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from arkqueue.model import COMMIT, PREV, REPORT, Cancels, Checkout, Depends, Fault, Retries, TaskDefinition, Trigger
from arkqueue.workflow.format import (
    NOT_YET,
    CancelsEntry,
    DependsEntry,
    Fields,
    RetriesEntry,
    Task,
    TaskFile,
    shown,
    timezones,
)
from arkqueue.workflow.nodes import MAX_WEIGHT, Entry, Node
from arkqueue.workflow.source import Source
from arkqueue.workflow.spelling import Speller

_KNOWN: Final = (*Task.model_fields, *sorted(NOT_YET))
_NESTED: Final[dict[str, type[BaseModel]]] = {"depends": DependsEntry, "cancels": CancelsEntry, "retries": RetriesEntry}
_EDGES: Final = ("depends", "cancels")
_OF_A_COMMAND: Final = frozenset(
    ("command", "script", "shell", "env", "timeout", "grace", "retries", "on_lost", "checkout", *NOT_YET)
)

_PLAIN_WORDS: Final = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "too_short": "is empty; give at least one, or leave the field out",
    "dict_type": "must be a mapping, a 'NAME: value' in each line",
    "model_type": "must be a mapping, a 'name: value' in each line",
}


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task as a file has it. ``name`` is None and ``fields`` lacks what was faulty; ``edges`` has a node for each entry."""

    path: str
    node: Node
    name_node: Node
    name: str | None
    fields: Fields
    edges: dict[str, list[Node]]

    def fault(self, node: Node, message: str, suggestion: str = "") -> Fault:
        return Fault(self.path, node.line, node.column, message, node.text, suggestion)

    def definition(self) -> TaskDefinition:
        """The task with all its defaults. Only for tasks without faults."""
        fields, given = self.fields, _given(self.fields)
        return TaskDefinition(
            name=self.name or "",
            path=self.path,
            line=self.node.line,
            depends=tuple(map(_depends, fields.depends or ())),
            cancels=tuple(map(_cancels, fields.cancels or ())),
            shell=(fields.shell or "sh") if fields.script is not None else None,
            retries=_retries(fields.retries),
            on=_triggers(fields),
            **given,
        )


def tasks_of(source: Source, faults: list[Fault], speller: Speller) -> list[FoundTask]:
    """All tasks of a file in its order; what is wrong with them is added to ``faults``."""
    return _File(source.path, faults, speller).tasks(source.root) if source.root else []


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    faults: list[Fault]
    speller: Speller
    defaults: dict[str, Entry] = field(default_factory=dict)

    # --- the file ---

    def tasks(self, root: Node) -> list[FoundTask]:
        nodes = root.value
        if isinstance(nodes, dict):
            nodes = self._tasks_of_mapping(root, nodes)
        elif not isinstance(nodes, list):
            self._fault(root, "a workflow file is a list of tasks; begin each with '- name: '", root.text)
            return []
        return [task for node in nodes if (task := self._task(node)) is not None]

    def _tasks_of_mapping(self, root: Node, entries: dict[str, Entry]) -> list[Node]:
        if "name" in entries:
            self._fault(root, "a workflow file is a list of tasks; begin the task with '- '")
            return []
        for name, entry in entries.items():
            if name not in TaskFile.model_fields:
                near = self.speller.nearest(name, tuple(TaskFile.model_fields))
                self._fault(
                    entry.key,
                    f"unknown field {shown(name)} beside 'tasks'; a file has 'defaults' and 'tasks'",
                    name,
                    near,
                )
        if "tasks" not in entries:
            self._fault(root, "'tasks' is missing; write the list of tasks under 'tasks:'")
            return []
        tasks = entries["tasks"]
        if not isinstance(tasks.value.value, list):
            self._fault(tasks.value, "tasks: must be a list; begin each task with '- name: '", tasks.value.text)
            return []
        if "defaults" in entries:
            self._read_defaults(entries["defaults"], len(tasks.value.value))
        return tasks.value.value

    def _read_defaults(self, entry: Entry, repeated: int) -> None:
        node = entry.value
        if not isinstance(node.value, dict):
            self._fault(node, "defaults: must be a mapping, a 'field: value' in each line", node.text)
            return
        if node.weight * repeated > MAX_WEIGHT:
            self._fault(
                entry.key, f"defaults: repeated in {repeated} tasks they come to more than 8 MiB; make them smaller"
            )
            return
        own = dict(node.value)
        if name := own.pop("name", None):
            self._fault(name.key, "defaults: a name is unique, so it cannot be a default; remove it", "name")
        self._check_command(own, own)
        own = self._accepted(own)
        # Judged here for what no task takes; a fault that is found again in a task is the same one, and told once.
        self._judged(own, node, Fields)
        self.defaults.update(own)

    # --- a task ---

    def _task(self, node: Node) -> FoundTask | None:
        if not isinstance(node.value, dict):
            self._fault(node, "a task must be a mapping; write '- name: …' and its other fields below", node.text)
            return None
        own = dict(node.value)
        name = own["name"].value if "name" in own else node
        if name.text in (COMMIT, REPORT):
            entries = self._accepted(self._implicit(name.text, own))
        else:
            own = self._accepted(own)
            entries = self._merged(own)
            self._check_command(own, entries)
        fields, edges = self._judged(entries, node, Task)
        if name is not node and "schedule" in _listed(fields.on) and "schedule" not in entries:
            self._fault(
                entries["on"].value, f"{shown(name.text)} has 'on: schedule', but no 'schedule'; add a cron expression"
            )
        valid = fields.name if isinstance(fields, Task) else None
        return FoundTask(self.path, node, name, valid, fields, edges)

    def _implicit(self, name: str, own: dict[str, Entry]) -> dict[str, Entry]:
        """COMMIT and REPORT have no fields of their own but these, and take no defaults (design 5.3, 5.4)."""
        kept = {}
        for word, entry in own.items():
            if word == "name" or (name == COMMIT and word == "depends") or word not in _KNOWN:
                kept[word] = entry
            elif name == REPORT and word in _OF_A_COMMAND:
                self._fault(entry.key, f"'{word}' of {REPORT} is not supported yet; remove it", word)
            else:
                takes = "nothing but 'depends'" if name == COMMIT else "only what belongs to a command"
                self._fault(entry.key, f"{name} takes {takes}, so '{word}' has no place here; remove it", word)
        return kept

    def _accepted(self, own: dict[str, Entry]) -> dict[str, Entry]:
        """Without the fields that are unknown, not supported yet, or have no value."""
        kept = {}
        for word, entry in own.items():
            if word in NOT_YET:
                self._fault(entry.key, f"'{word}' is not supported yet; remove it", word)
            elif word not in Task.model_fields:
                self._fault(entry.key, f"unknown field {shown(word)}", word, self.speller.nearest(word, _KNOWN))
            elif entry.value.value is None:
                self._fault(entry.key, f"'{word}' has no value; give one, or remove the field", word)
            else:
                kept[word] = entry
        return kept

    def _merged(self, own: dict[str, Entry]) -> dict[str, Entry]:
        """The task's fields over the defaults: ``env`` by variable, anything else as a whole."""
        defaults = dict(self.defaults)
        replaced = {"command": ("script", "shell"), "script": ("command",)}
        for word in own:
            for other in replaced.get(word, ()):
                defaults.pop(other, None)
        merged = {**defaults, **own}
        # What only goes with another field is no default for tasks without that one.
        for word, other in (("shell", "script"), ("timezone", "schedule")):
            if word not in own and other not in merged:
                merged.pop(word, None)
        if "env" in own and "env" in defaults:
            mine, theirs = own["env"].value, defaults["env"].value
            if isinstance(mine.value, dict) and isinstance(theirs.value, dict):
                both = Node({**theirs.value, **mine.value}, mine.line, mine.column)
                merged["env"] = Entry(own["env"].key, both)
        return merged

    def _check_command(self, own: dict[str, Entry], merged: dict[str, Entry]) -> None:
        if "command" in own and "script" in own:
            later = max(own["command"].key, own["script"].key, key=lambda key: (key.line, key.column))
            self._fault(
                later, "'command' and 'script' are both given; a task has one of them, so remove one", later.text
            )
        is_defaults = own is merged
        for word, other in (("shell", "script"), ("timezone", "schedule")):
            if word in own and other not in merged and not is_defaults:
                self._fault(own[word].key, f"'{word}' is given without '{other}'; add it, or remove '{word}'", word)

    # --- the format ---

    def _judged(
        self, entries: dict[str, Entry], owner: Node, model: type[Fields]
    ) -> tuple[Fields, dict[str, list[Node]]]:
        """The fields that are right, and the nodes of the edges among them; the others become faults."""
        data = {word: _plain(entry.value) for word, entry in entries.items()}
        edges: dict[str, list[Node]] = {}
        for word in _EDGES:
            if word in entries:
                value = entries[word].value
                edges[word] = value.value if isinstance(value.value, list) else [value]
                data[word] = data[word] if isinstance(value.value, list) else [data[word]]
        try:
            return model.model_validate(data), edges
        except ValidationError as why:
            errors = why.errors(include_url=False)
        for error in errors:
            self._report(error, entries, owner)
        wrong = {error["loc"][: 2 if error["loc"][0] in _EDGES else 1] for error in errors}
        right = {word: value for word, value in data.items() if (word,) not in wrong}
        for word in edges:
            places = [place for place in range(len(edges[word])) if (word, place) not in wrong]
            edges[word] = [edges[word][place] for place in places]
            right[word] = [data[word][place] for place in places]
        return (model if "name" in right else Fields).model_validate(right), edges

    def _report(self, error: ErrorDetails, entries: dict[str, Entry], owner: Node) -> None:
        """One of pydantic's errors, where it stands and in plain words."""
        kind, context = error["type"], error.get("ctx", {})
        trail, node, key = _follow(error["loc"], entries, owner)
        label = ".".join(trail)
        if kind == "missing" and trail[:1] != ["name"] and isinstance(node.value, dict) and PREV in node.value:
            return  # "PREV: name", which is told below
        if kind == "missing":
            last = str(error["loc"][-1])
            what = "a task without a name: add 'name: …'" if label in ("", "name") else f"{label}: '{last}' is missing"
            self._fault(node, what, last)
        elif kind == "extra_forbidden":
            word = str(error["loc"][-1])
            near = self.speller.nearest(word, tuple(_NESTED[trail[0]].model_fields))
            if word == PREV and trail[0] in _EDGES:
                self._fault(key, f"{trail[0]}: 'PREV: name' is a mapping; write PREV:name without the space", word)
            else:
                self._fault(key, f"{trail[0]}: unknown field {shown(word)}", word, near)
        elif kind in ("literal_error", "enum"):
            choices = re.findall(r"'([^']*)'", context["expected"])
            near = self.speller.nearest(node.text, choices)
            self._fault(node, f"{label}: {shown(node.text)} is not one of {', '.join(choices)}", node.text, near)
        else:
            message = _PLAIN_WORDS.get(kind, error["msg"]).format(**context) if kind != "fault" else error["msg"]
            at = key if error["loc"][-1] == "[key]" else node
            near = context.get("suggestion", "")
            if label == "timezone":
                near = self.speller.nearest(at.text, timezones())
            self._fault(at, f"{label}: {message}", context.get("word") or at.text, near)

    def _fault(self, node: Node, message: str, word: str = "", suggestion: str = "") -> None:
        self.faults.append(Fault(self.path, node.line, node.column, message, word, suggestion))


def _plain(node: Node) -> Any:
    """What the models see: texts, lists and mappings; a number, true or false stays a node that knows how it was written."""
    if isinstance(node.value, list):
        return [_plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {word: _plain(entry.value) for word, entry in node.value.items()}
    return node.value if node.value is None or isinstance(node.value, str) else node


def _follow(location: tuple[int | str, ...], entries: dict[str, Entry], owner: Node) -> tuple[list[str], Node, Node]:
    """The words on the way to a place in a task, the node there, and the key it belongs to.

    Parts of the location that are not in the file (an alternative's tag, a missing field, the place in a list of one that was written
    without brackets) are passed over.
    """
    node, key, trail = Node({**entries}, owner.line, owner.column), owner, []
    for part in location:
        if isinstance(node.value, list) and isinstance(part, int):
            node = node.value[part]
        elif isinstance(node.value, dict) and isinstance(part, str) and part in node.value:
            entry = node.value[part]
            node, key = entry.value, entry.key
            trail.append(part)
    return trail, node, key


# --- from the format's models to the design's words ------------------------------------------------


def _given(fields: Fields) -> dict[str, Any]:
    """The fields that a definition takes as they are."""
    given: dict[str, Any] = {
        word: value
        for word in ("script", "env", "timeout", "grace", "schedule", "timezone", "exclusive", "on_lost")
        if (value := getattr(fields, word)) is not None
    }
    if fields.command is not None:
        given["command"] = fields.command if isinstance(fields.command, str) else tuple(fields.command)
    for word in ("paths", "branches"):
        if (patterns := getattr(fields, word)) is not None:
            given[word] = tuple(patterns)
    if isinstance(fields.checkout, list):
        given |= {"checkout": Checkout.PATHS, "checkout_paths": tuple(fields.checkout)}
    elif fields.checkout is not None:
        given["checkout"] = Checkout(fields.checkout)
    return given


def _depends(entry: str | DependsEntry) -> Depends:
    if isinstance(entry, str):
        entry = DependsEntry(task=entry)
    task, previous = _reference(entry.task)
    return Depends(task, previous, entry.when, entry.optional)


def _cancels(entry: str | CancelsEntry) -> Cancels:
    if isinstance(entry, str):
        entry = CancelsEntry(task=entry)
    task, previous = _reference(entry.task)
    return Cancels(task, previous, only_unstarted=entry.only is not None)


def _reference(word: str) -> tuple[str | None, bool]:
    """``x`` → (x, False); ``PREV`` → (None, True); ``PREV:x`` → (x, True)."""
    if word == PREV:
        return None, True
    name = word.removeprefix(f"{PREV}:")
    return name, name != word


def _retries(retries: int | RetriesEntry | None) -> Retries:
    if isinstance(retries, RetriesEntry):
        return Retries(retries.max, retries.delay, retries.factor)
    return Retries(retries or 0)


def _triggers(fields: Fields) -> tuple[Trigger, ...]:
    """In one order, so that equal definitions are equal; a schedule without ``on`` means no run for each commit."""
    words = set(_listed(fields.on)) or ({"manual"} if fields.schedule else {"commit", "manual"})
    if fields.schedule:
        words.add("schedule")
    return tuple(trigger for trigger in Trigger if trigger in words)


def _listed(words: list[Any] | None) -> list[str]:
    return words or []
