"""Makes tasks from the nodes of one file: merges the defaults, checks every field against the
format, and gives every fault its position.

A task is checked as a whole even if parts of it are wrong: faulty parts are left out, so that its
edges can still be checked against the other tasks. Called by ``arkqueue.workflow.parsing``; ``check``
examines the result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from arkqueue import lock_names
from arkqueue.model import COMMIT, OWN, PREV, REPORT, Fault, Foreach, Item, TaskDefinition
from arkqueue.workflow.containers import ImageEntry, MountEntry, ResourcesEntry, mount_path, placed
from arkqueue.workflow.definition import definition_of, listed
from arkqueue.workflow.format import (
    NOT_YET,
    CancelsEntry,
    DependsEntry,
    Fields,
    ListFile,
    PollEntry,
    RetriesEntry,
    SubmissionEntry,
    Task,
    TaskFile,
)
from arkqueue.workflow.list_files import ListFiles
from arkqueue.workflow.lists import digest_of, fields_of, items_of
from arkqueue.workflow.nodes import MAX_FAULTS, MAX_WEIGHT, Entry, Node
from arkqueue.workflow.schemas import SchemaFile
from arkqueue.workflow.source import Source
from arkqueue.workflow.spelling import Speller
from arkqueue.workflow.values import shown, timezones

_KNOWN: Final = (*Task.model_fields, *sorted(NOT_YET))
_NESTED: Final[dict[str, type[BaseModel]]] = {
    "depends": DependsEntry,
    "cancels": CancelsEntry,
    "retries": RetriesEntry,
    "poll": PollEntry,
    "image": ImageEntry,
    "mounts": MountEntry,
    "resources": ResourcesEntry,
    "foreach": ListFile,
    "submission": SubmissionEntry,
}
_OF_A_CONTAINER: Final = ("image", "mounts", "resources", "network", "user", "workdir")
_BY_KEY: Final = ("env", "resources")
"""Fields that are merged with the default, key by key. Any other field replaces its default."""
_SCRATCH: Final = "/scratch"
"""The path of the scratch folder in a container."""
_EDGES: Final = ("depends", "cancels")
_OF_A_COMMAND: Final = frozenset(
    (
        "command",
        "script",
        "shell",
        "env",
        "timeout",
        "grace",
        "retries",
        "deadline",
        "on_lost",
        "hold",
        "priority",
        "runs_on",
        "checkout",
        "changes",
        "scratch",
        *_OF_A_CONTAINER,
        *NOT_YET,
    )
)

_PLAIN_WORDS: Final = {
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "too_long": "has {actual_length} entries, more than {max_length}; give fewer",
    "too_short": "is empty; give at least one, or leave the field out",
    "dict_type": "must be a mapping, a 'NAME: value' in each line",
    "model_type": "must be a mapping, a 'name: value' in each line",
}


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task as written in a file. ``name`` None: its name was faulty. ``fields``: the fields
    without faults. ``edges``: a node for each entry.
    """

    path: str
    node: Node
    name_node: Node
    name: str | None
    fields: Fields
    edges: dict[str, list[Node]]
    items: tuple[Item, ...] | None = None
    """The items of its list; None: it has no list."""

    foreach: Foreach | None = None

    def fault(self, node: Node, message: str, suggestion: str = "") -> Fault:
        return Fault(self.path, node.line, node.column, message, node.text, suggestion)

    def definition(self) -> TaskDefinition:
        """The task with all its defaults. Only for tasks without faults."""
        return definition_of(self.fields, self.name or "", self.path, self.node.line, self.foreach)


def tasks_of(
    source: Source, faults: list[Fault], speller: Speller, lists: ListFiles, schemas: SchemaFile
) -> list[FoundTask]:
    """All tasks of a file in its order. The faults of the tasks, and of the lists and the schema
    that they name, are added to ``faults``.
    """
    return _File(source.path, faults, speller, lists, schemas).tasks(source.root) if source.root else []


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    faults: list[Fault]
    speller: Speller
    lists: ListFiles
    schemas: SchemaFile
    defaults: dict[str, Entry] = field(default_factory=dict)
    judged: dict[tuple[int | str, str | None], tuple[tuple[Item, ...], Foreach]] = field(default_factory=dict)
    """The lists that were checked, by their node or the path of their file, and by the field that
    identifies an item. Tasks that share a list by `defaults` do not check it again.
    """

    # --- the file ---

    def tasks(self, root: Node) -> list[FoundTask]:
        nodes = root.value
        if isinstance(nodes, dict):
            nodes = self._tasks_of_mapping(root, nodes)
        elif not isinstance(nodes, list):
            self._fault(root, "a workflow file is a list of tasks; begin each with '- name: '", root.text)
            return []
        found = []
        for node in nodes:
            if len(self.faults) > MAX_FAULTS:
                break
            if (task := self._task(node)) is not None:
                found.append(task)
        return found

    def _tasks_of_mapping(self, root: Node, entries: dict[str, Entry]) -> list[Node]:
        if "name" in entries:
            self._fault(root, "a workflow file is a list of tasks; begin the task with '- '")
            return []
        for name, entry in entries.items():
            if name not in TaskFile.model_fields:
                near = self.speller.nearest(name, tuple(TaskFile.model_fields))
                self._fault(
                    entry.key,
                    f"unknown field {shown(name)} beside 'tasks'; a file has 'defaults', 'submission' and 'tasks'",
                    name,
                    near,
                )
        if "submission" in entries:
            self._read_submission(entries["submission"])
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

    def _read_submission(self, entry: Entry) -> None:
        """Read the schema that a file names."""
        node = entry.value
        if not isinstance(node.value, dict):
            self._fault(node, "submission: must be a mapping, as {schema: schemas/batch.json}", node.text)
            return
        try:
            path = SubmissionEntry.model_validate({word: _plain(one.value) for word, one in node.value.items()}).file
        except ValidationError as why:
            for error in why.errors(include_url=False):
                self._report(error, {"submission": entry}, node, "submission")
            return
        at = node.value["schema"].value
        if fault := self.schemas.read(path, f"{self.path}:{at.line}:{at.column}", self.faults):
            self._fault(at, f"submission.schema: {shown(path)}: {fault}", path)

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
        # Checked here, because no task may use a default. A fault that a task repeats is reported
        # once.
        fields, _ = self._judged(own, node, Fields)
        self._check_places(fields, own)
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
            self._check_report(entries)
        else:
            own = self._accepted(own)
            entries = self._merged(own)
            self._check_command(own, entries)
        fields, edges = self._judged(entries, node, Task)
        if name is not node and "schedule" in listed(fields.on) and "schedule" not in entries:
            self._fault(
                entries["on"].value, f"{shown(name.text)} has 'on: schedule', but no 'schedule'; add a cron expression"
            )
        self._check_submission(fields, entries, name)
        self._check_places(fields, entries)
        valid = fields.name if isinstance(fields, Task) else None
        self._check_self(fields, edges, valid)
        items, foreach = self._list(fields, entries)
        self._check_locks(fields, entries, valid, items)
        return FoundTask(self.path, node, name, valid, fields, edges, items, foreach)

    def _list(self, fields: Fields, entries: dict[str, Entry]) -> tuple[tuple[Item, ...] | None, Foreach | None]:
        """The items of a task's list, and the identity of the list. None: it has no list."""
        if fields.foreach is None:
            return None, None
        node, key = entries["foreach"].value, fields.key
        if fields.foreach == "submission":
            return (), Foreach.of_submission(key)
        file = fields.foreach.file if isinstance(fields.foreach, ListFile) else None
        place = (id(node) if file is None else file, key)
        if place not in self.judged:
            items = self._in_place(node, key) if file is None else self._in_file(node, file, key)
            self.judged[place] = items, Foreach(digest_of(items), key, file, len(items))
        return self.judged[place]

    def _in_place(self, node: Node, key: str | None) -> tuple[Item, ...]:
        assert isinstance(node.value, list)
        return items_of(node.value, key, self.lists.most_items, lambda at, fault: self._fault(at, fault, at.text))

    def _in_file(self, node: Node, path: str, key: str | None) -> tuple[Item, ...]:
        found, fault = self.lists.items(path, key, self.faults)
        if fault:
            assert isinstance(node.value, dict)
            self._fault(node.value["file"].value, f"foreach.file: {shown(path)}: {fault}", path)
        return found

    def _check_submission(self, fields: Fields, entries: dict[str, Entry], name: Node) -> None:
        """Report another trigger of a task over the items of a submission: it may have no other."""
        others = [word for word in listed(fields.on) if word != "submission"]
        if fields.foreach != "submission" or not (others or fields.schedule):
            return
        at = entries["on"].value if others else entries["schedule"].value
        word = f"on: {others[0]}" if others else "schedule"
        fault = f"{shown(name.text)} has 'foreach: submission', and no run but that of a submission has its items; remove '{word}'"
        self._fault(at, fault, others[0] if others else "schedule")

    def _implicit(self, name: str, own: dict[str, Entry]) -> dict[str, Entry]:
        """The fields that COMMIT and REPORT may have. These tasks take no defaults (design 5.3,
        5.4).
        """
        kept = {}
        for word, entry in own.items():
            own_fields = ("depends",) if name == COMMIT else _OF_A_COMMAND
            if word == "name" or word in own_fields or word not in _KNOWN:
                kept[word] = entry
            elif name == REPORT and word in ("lock", "poll"):
                self._fault(entry.key, f"{REPORT} takes no lock and no poll; remove '{word}'", word)
            else:
                takes = "nothing but 'depends'" if name == COMMIT else "only what belongs to its command"
                self._fault(entry.key, f"{name} takes {takes}, so '{word}' has no place here; remove it", word)
        return kept

    def _check_report(self, entries: dict[str, Entry]) -> None:
        """Check the fields of REPORT, which only describe its command; `hold` also stands alone (design
        5.21).
        """
        if {"command", "script"} & entries.keys():
            self._check_command(entries, dict(entries))
            return
        for word, entry in entries.items():
            if word in _OF_A_COMMAND and word != "hold":
                what = f"'{word}' of {REPORT} is given without a program; add 'command' or 'script', or remove it"
                self._fault(entry.key, what, word)

    def _accepted(self, own: dict[str, Entry]) -> dict[str, Entry]:
        """The entries without unknown fields, fields that are not supported yet, and fields without
        a value.
        """
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
        """The task's fields merged with the defaults: ``env`` and ``resources`` key by key, any
        other field as a whole.
        """
        defaults = dict(self.defaults)
        replaced = {"command": ("script", "shell"), "script": ("command",)}
        for word in own:
            for other in replaced.get(word, ()):
                defaults.pop(other, None)
        merged = {**defaults, **own}
        # A field that needs another one is not a default for tasks without that other one.
        for word, other in (("shell", "script"), ("timezone", "schedule"), ("key", "foreach")):
            if word not in own and other not in merged:
                merged.pop(word, None)
        has_program = not {"command", "script"}.isdisjoint(merged)
        if "poll" not in own and not has_program:
            merged.pop("poll", None)
        if "scratch" not in own and (not has_program or (_is_of_an_item(merged) and "foreach" not in merged)):
            merged.pop("scratch", None)
        for word in _BY_KEY:
            if word in own and word in defaults:
                mine, theirs = own[word].value, defaults[word].value
                if isinstance(mine.value, dict) and isinstance(theirs.value, dict):
                    both = Node({**theirs.value, **mine.value}, mine.line, mine.column)
                    merged[word] = Entry(own[word].key, both)
        return merged

    def _check_command(self, own: dict[str, Entry], merged: dict[str, Entry]) -> None:
        if "command" in own and "script" in own:
            later = max(own["command"].key, own["script"].key, key=lambda key: (key.line, key.column))
            self._fault(
                later, "'command' and 'script' are both given; a task has one of them, so remove one", later.text
            )
        is_defaults = own is merged
        for word, other in (("shell", "script"), ("timezone", "schedule"), ("key", "foreach")):
            if word in own and other not in merged and not is_defaults:
                self._fault(own[word].key, f"'{word}' is given without '{other}'; add it, or remove '{word}'", word)
        poll = own["poll"].value.value if "poll" in own else None
        if (
            isinstance(poll, dict)
            and poll.keys() <= PollEntry.model_fields.keys()
            and ("command" in poll) == ("script" in poll)
        ):
            self._fault(own["poll"].value, "poll: must have a 'command' or a 'script', and not both")
        if "poll" in own and not is_defaults and not {"command", "script"} & merged.keys():
            what = "there is nothing to poll for; add 'command' or 'script', or remove 'poll'"
            self._fault(own["poll"].key, f"'poll' is given without a program: {what}", "poll")
        if "scratch" in own and not is_defaults:
            if not {"command", "script"} & merged.keys():
                what = "nothing would use the folder; add 'command' or 'script', or remove 'scratch'"
                self._fault(own["scratch"].key, f"'scratch' is given without a program: {what}", "scratch")
            elif _is_of_an_item(own) and "foreach" not in merged:
                what = "scratch: its task has no items; add 'foreach', or write run, for one folder of the whole run"
                self._fault(own["scratch"].value, what, "item", "run")

    def _check_places(self, fields: Fields, entries: dict[str, Entry]) -> None:
        """Report paths in the container that are used twice."""
        found: list[tuple[str, Node]] = []
        if fields.mounts is not None:
            value = entries["mounts"].value
            nodes = value.value if isinstance(value.value, list) else [value]
            for mount, node in zip(fields.mounts, nodes, strict=True):
                found.append((placed(mount).path, node.value["path"].value if isinstance(node.value, dict) else node))
        if fields.resources is not None and fields.resources.tmpfs is not None:
            tmpfs = entries["resources"].value.value
            assert isinstance(tmpfs, dict)
            keys = tmpfs["tmpfs"].value.value
            assert isinstance(keys, dict)
            found += [(mount_path(path), entry.key) for path, entry in keys.items()]
        if fields.scratch is not None:
            for path, node in found:
                if path == _SCRATCH or path.startswith(f"{_SCRATCH}/"):
                    self._fault(
                        node,
                        f"{path}: a task with 'scratch' has that folder at {_SCRATCH}; choose another path",
                        node.text,
                    )
        taken: dict[str, Node] = {}
        for path, node in sorted(found, key=lambda place: (place[1].line, place[1].column)):
            if path in taken:
                first = taken[path].line
                self._fault(node, f"{path} is used twice, first in line {first}; choose another path", node.text)
            taken.setdefault(path, node)

    def _check_self(self, fields: Fields, edges: dict[str, list[Node]], name: str | None) -> None:
        """Report a dependency with the name under which a poll finds the task's own outputs in
        INPUTS.
        """
        for entry, node in zip(fields.depends or (), edges.get("depends", ()), strict=True):
            word = entry if isinstance(entry, str) else entry.task
            if fields.poll is not None and (name if word == PREV else word.removeprefix(f"{PREV}:")) == OWN:
                fault = f"depends: a task with 'poll' cannot depend on one named '{OWN}', as its own outputs have that name in INPUTS; rename it"
                self._fault(node, fault, OWN)

    def _check_locks(
        self, fields: Fields, entries: dict[str, Entry], name: str | None, items: tuple[Item, ...] | None
    ) -> None:
        """Report fields in names of locks that nothing provides. A field belongs to the item, or is
        an output of a task that this one depends on, in this run or an earlier one.
        """
        if not fields.lock or not any(lock_names.MARK in lock for lock in fields.lock):
            return
        words = [entry if isinstance(entry, str) else entry.task for entry in fields.depends or ()]
        depends = {name if word == PREV else word.removeprefix(f"{PREV}:") for word in words}
        value = entries["lock"].value
        nodes = value.value if isinstance(value.value, list) else [value]
        for lock, node in zip(fields.lock, nodes, strict=True):
            for word in lock_names.item_fields(lock):
                if items is None:
                    fault = f"lock: {shown(lock)}: its task has no items; add 'foreach', or remove 'item.{word}'"
                    self._fault(node, fault, word)
                elif not all(word in fields for fields in fields_of(items)):
                    self._fault(node, f"lock: {shown(lock)}: not every item has a field {shown(word)}; add it", word)
            for path in lock_names.paths(lock):
                if lock_names.meant(path, {word for word in depends if word}) is None:
                    needed = path.partition(".")[0]
                    self._fault(
                        node,
                        f"lock: {shown(lock)}: its task depends on none that 'needs.{path}' could mean; write 'needs.TASK.OUTPUT', and TASK in 'depends'",
                        needed,
                    )

    # --- the format ---

    def _judged(
        self, entries: dict[str, Entry], owner: Node, model: type[Fields]
    ) -> tuple[Fields, dict[str, list[Node]]]:
        """The valid fields, and the nodes of their edges. The other fields become faults."""
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

    def _report(self, error: ErrorDetails, entries: dict[str, Entry], owner: Node, *inside: str) -> None:
        """Report an error of pydantic as a fault with its position, in plain words. ``inside``: the
        fields around the checked part.
        """
        kind, context = error["type"], error.get("ctx", {})
        trail, node, key = _follow((*inside, *error["loc"]), entries, owner)
        label = ".".join(trail)
        if kind == "missing" and trail[:1] != ["name"] and isinstance(node.value, dict) and PREV in node.value:
            return  # "PREV: name", which is reported below
        if kind == "missing":
            last = str(error["loc"][-1])
            what = "a task without a name: add 'name: …'" if label in ("", "name") else f"{label}: '{last}' is missing"
            self._fault(node, what, last)
        elif kind == "extra_forbidden":
            word = str(error["loc"][-1])
            fields = _NESTED[trail[0]].model_fields
            near = self.speller.nearest(word, tuple(field.alias or name for name, field in fields.items()))
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


def _is_of_an_item(entries: dict[str, Entry]) -> bool:
    return "scratch" in entries and entries["scratch"].value.text == "item"


def _plain(node: Node) -> Any:
    """The value of a node for the models: texts, lists and mappings. A number, true or false stays
    a node, which keeps its spelling.
    """
    if isinstance(node.value, list):
        return [_plain(item) for item in node.value]
    if isinstance(node.value, dict):
        return {word: _plain(entry.value) for word, entry in node.value.items()}
    return node.value if node.value is None or isinstance(node.value, str) else node


def _follow(location: tuple[int | str, ...], entries: dict[str, Entry], owner: Node) -> tuple[list[str], Node, Node]:
    """The words on the path to a place in a task, the node there, and the node of its key.

    Some parts of the location are not in the file, and are skipped: the tag of an alternative, a
    missing field, the index in a list that was written without brackets.
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
