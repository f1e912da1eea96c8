"""Every answer of a reader process is validated before its use, because hostile files may have
taken over the process that parses them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from arkqueue.errors import ArchiveMismatch, WorkspaceError, host_fault
from arkqueue.model import ArchiveKind, ChangeStatus, FileChange, Origin, Revision, SourceFile, TreeChange
from arkqueue.repository import ONLY_KEY, Advance, Fork, LastKnown, NewBranch, Survey, SurveyOptions
from arkqueue.repository.limits import TooManyPaths
from arkqueue.repository.location import Identity
from arkqueue.repository.reader import frames, messages, workflows
from arkqueue.repository.reader.frames import Malformed
from arkqueue.repository.reader.messages import ReaderFault
from arkqueue.workflow.parsing import parse

REVISION = Revision("12", 12, "Zoë", datetime(2026, 11, 24, tzinfo=UTC), "a\n\u2028b", Origin("pdf@3", 2), "long")


def sent(value: object) -> Any:
    """As it arrives."""
    data = frames.frame({"answer": value})
    assert frames.length(data[:4]) == len(data) - 4
    return frames.message(data[4:])["answer"]


def a_list(path: str) -> SourceFile:
    return SourceFile(path, b"a\nb\n")


def test_lists_arrive_with_the_workflow_that_names_them() -> None:
    files = [SourceFile("_workflows/a.yaml", b"- {name: a, command: x, foreach: {file: v.txt}}")]
    taken = workflows.take_workflow(sent(workflows.put_workflow(files, a_list, 10)))
    assert taken == parse(files, a_list)
    assert [item.key for item in taken.items_of(taken.tasks[0]) or ()] == ["a", "b"]
    assert taken.list_files == ("v.txt",)


def test_a_list_that_is_named_behind_escapes_is_a_fault() -> None:
    files = [SourceFile("_workflows/a.yaml", b'- {name: a, command: x, "fore\\u0061ch": {file: v.txt}}')]
    (fault,) = workflows.take_workflow(sent(workflows.put_workflow(files, a_list, 10))).faults
    assert "the word foreach is written with escapes" in fault.message


def test_what_is_put_is_taken() -> None:
    assert messages.take_revision(sent(messages.put_revision(REVISION))) == REVISION
    advance = Advance(("a", "b"), (REVISION,), complete=False, baseline=REVISION)
    put = {**messages.put_advance(advance), "keys": {"12": "k"}}
    assert messages.take_advance(sent(put)) == (advance, {"12": "k"})
    forks = {"topic": Fork("a", 3), "pages": Fork(None, 0)}
    assert messages.take_forks(sent({name: messages.put_fork(fork) for name, fork in forks.items()})) == forks
    branch = NewBranch("topic", "b")
    assert NewBranch(*sent(messages.put_new_branch(branch))) == branch
    last = LastKnown(REVISION.id, REVISION.number, REVISION.author, REVISION.date)
    assert messages.take_known(sent(messages.put_known(REVISION, ArchiveKind.SUBVERSION))) == last
    assert messages.take_known(sent(messages.put_known(REVISION, ArchiveKind.GIT)))[:2] == last[:2]
    identity = Identity(ArchiveKind.SUBVERSION, "file:///x", "uuid", "trunk")
    assert messages.take_identity(sent(messages.put_identity(identity))) == identity
    file = SourceFile("_workflows/a.yaml", bytes(range(256)), "fault")
    assert workflows.take_files(sent([workflows.put_file(file)])) == (file,)
    for change in (TreeChange((b"a/\xff", "ä".encode()), -4096, 17, {2**60: b"a", 0: b""}), TreeChange((), 0)):
        assert messages.take_change(sent(messages.put_change(change))) == change
    changes = (FileChange(ChangeStatus.ADDED, "a\udcff"), FileChange(ChangeStatus.DELETED, "ä"))
    assert messages.take_changes(sent(messages.put_changes(changes))) == changes
    for options in (
        ONLY_KEY,
        SurveyOptions("12", changes=True, notes=True, most=3, base_recorded=replace(REVISION, message="")),
    ):
        assert messages.take_survey_options(sent(messages.put_survey_options(options))) == options
    survey = Survey("key", changes, ("é is not followed",))
    for made in (None, TreeChange((b"a",), 1)):
        assert messages.take_update(sent(messages.put_update(survey, made))) == (survey, made)


@pytest.mark.parametrize("rest", [b"", b"#" * workflows.SHORT], ids=["short", "long"])
def test_workflow_files_arrive_parsed(rest: bytes) -> None:
    good, faulty = b"- {name: a, command: make, env: {A: x}}\n", b"- {name: a, comand: make}\n"
    for body in (good, faulty):
        files = [SourceFile("_workflows/a.yaml", body + rest), SourceFile("_workflows/b.yaml", fault="is a link")]
        put = workflows.put_workflow(files, a_list, 10)
        assert ("files" in put) == (not rest)
        assert workflows.take_workflow(sent(put)) == parse(files)
    assert parse([SourceFile("_workflows/a.yaml", good + rest)]).tasks


def test_errors_arrive_with_their_kind_and_what_the_system_said() -> None:
    mismatch = messages.take_error(sent(messages.put_error(ArchiveMismatch("x", "is another", "Bring it"))))
    assert type(mismatch) is ArchiveMismatch
    assert str(mismatch) == "x: is another. Bring it"
    full = WorkspaceError("x", "no room")
    full.__cause__ = OSError(28, "No space left on device")
    found = host_fault(messages.take_error(sent(messages.put_error(full))))
    assert found is not None
    assert found.errno == 28
    assert isinstance(messages.take_error(sent(messages.put_error(TooManyPaths(1000)))), TooManyPaths)
    other = messages.take_error(sent(messages.put_error(KeyError("x"))))
    assert isinstance(other, ReaderFault)
    assert str(other) == "KeyError: 'x'"


REVISION_OF = messages.put_revision(REVISION)


@pytest.mark.parametrize(
    ("take", "answer"),
    [
        (frames.text, 1),
        (frames.texts, ["a", 1]),
        (frames.texts, {"a": "b"}),
        (frames.names, {"main": None}),
        (frames.truth, 1),
        (frames.number, True),
        (frames.number, 2**63),
        (frames.nothing, 0),
        (messages.take_revision, {**REVISION_OF, "number": "12"}),
        (messages.take_revision, {**REVISION_OF, "date": "2026-11-24T00:00:00"}),
        (messages.take_revision, {**REVISION_OF, "date": "yesterday"}),
        (messages.take_revision, {**REVISION_OF, "origin": ["pdf@3"]}),
        (messages.take_revision, []),
        (messages.take_forks, {"topic": ["a", -1]}),
        (messages.take_forks, {"topic": [1, 1]}),
        (messages.take_forks, {"topic": ["a"]}),
        (messages.take_heads, {"heads": {}, "gone": {}, "are_checked": True}),
        (messages.take_identity, ["bazaar", "x", "", ""]),
        (workflows.take_files, [["a", "%%%", ""]]),
        (workflows.take_workflow, {"tasks": [{"name": 1}], "faults": []}),
        (workflows.take_workflow, {"tasks": [], "faults": [["a.yaml", "1", 1, "wrong", "", ""]]}),
        (workflows.take_workflow, {"tasks": []}),
        (
            workflows.take_workflow,
            {"tasks": [{"name": "a", "foreach": {"items": "x"}}], "faults": [], "lists": {}, "list_files": []},
        ),
        (workflows.take_workflow, {"tasks": [], "faults": [], "lists": {"x": [["a"]]}, "list_files": []}),
        (workflows.take_lists(1), {"lists": [], "faults": []}),
        (workflows.take_lists(1), {"lists": [[["a"]]], "faults": []}),
        (workflows.take_lists(0), {"lists": [], "faults": [["a.csv", "1", 1, "wrong", "", ""]]}),
        (workflows.take_workflow, {"files": [["a.yaml", "IyMj" * workflows.SHORT, ""]]}),
        (messages.take_change, {"made": ["../etc/shadow"], "grown": 0}),
        (messages.take_change, {"made": ["/etc/shadow"], "grown": 0}),
        (messages.take_change, {"made": ["a/../../b"], "grown": 0}),
        (messages.take_changes, {"statuses": ["moved"], "paths": ["a"]}),
        (messages.take_changes, {"statuses": ["added", "added"], "paths": ["a"]}),
        (messages.take_change, {"made": [], "grown": 0, "began": 1, "entered": [[1, "../etc"]]}),
        (messages.take_change, {"made": [], "grown": 0, "began": 1, "entered": [["1", "etc"]]}),
        (messages.take_change, {"made": [], "grown": 0, "began": 1, "entered": [[1]]}),
        (messages.inside(Path("/tree")), "/tree/../etc"),
        (messages.inside(Path("/tree")), "/etc"),
        (messages.take_error, {"kind": "SystemExit", "words": ["a", "b", "c"]}),
        (messages.take_error, {"kind": "NotFound", "words": ["a", "b"]}),
        (messages.take_error, {"kind": "NotFound", "words": ["a" * 10**6, "b", "c"]}),
    ],
)
def test_what_is_no_answer_is_refused(take: Callable[[object], object], answer: object) -> None:
    with pytest.raises(Malformed):
        take(sent(answer))


def test_no_frame_is_longer_than_the_limit() -> None:
    with pytest.raises(Malformed, match="more than"):
        frames.length((frames.LONGEST + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("body", [b"", b"1", b"[]", b'{"a":', b"\xff", b"[" * 10**6, json.dumps(10**400).encode()])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        frames.message(body)
