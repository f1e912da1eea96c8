"""The format of workflow files as pydantic models: the one source of what is accepted, of the words
of faults, and of the JSON Schema.

A model sees one task or one ``defaults`` mapping as plain data in which numbers, true and false are
still nodes, so a field that takes a text gets ``1.10`` as it was written. Rules about more than one
field are in ``tasks``, rules about more than one task in ``check``. There are no positions here:
pydantic says where a fault is in the data, and ``tasks`` where it is in the file.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from arkqueue.model import MOST_LABELS, MOST_LOCKS, When
from arkqueue.workflow.containers import AnyImage, AnyMount, Network, ResourcesEntry, User, Workdir
from arkqueue.workflow.values import (
    A_LIST,
    Count,
    Cron,
    Duration,
    Factor,
    Flag,
    Label,
    Lock,
    Name,
    OneOrMore,
    Path,
    Pattern,
    Priority,
    Program,
    Reference,
    Shell,
    StrictModel,
    Text,
    Variable,
    Victim,
    Written,
    Zone,
    as_written,
    either,
    list_file,
    of_submission,
    patterns,
    positive,
    schema_file,
)

NOT_YET: Final = frozenset(
    [
        "secrets",
        "artifacts",
    ]
)
"""Fields of design 3 that a later version will support; until then, a task with one has a fault."""


# --- The models ----------------------------------------------------------------------------------


class DependsEntry(StrictModel):
    """Waits until a task has completed, settled in any way, or failed. If a task does not fail, tasks that wait for its failure are skipped."""

    task: Reference
    when: When = When.COMPLETED
    optional: Flag = False
    excepted: Annotated[OneOrMore[Name], Field(min_length=1)] | None = Field(
        None, alias="except", description="Tasks that PREV:* leaves out."
    )


class CancelsEntry(StrictModel):
    """Supersedes a task; with only: unstarted, a running task goes on."""

    task: Victim
    only: Literal["unstarted"] | None = None


@lru_cache(4096)
def depends_entry(word: str) -> DependsEntry:
    """The long form of a word in ``depends``; cached, because many tasks name the same few words."""
    return DependsEntry.model_validate({"task": word})


@lru_cache(4096)
def cancels_entry(word: str) -> CancelsEntry:
    """The entry that a single word in ``cancels`` stands for."""
    return CancelsEntry.model_validate({"task": word})


class RetriesEntry(StrictModel):
    """Automatic retries after a failure: their number, the first delay, and the factor of later delays."""

    max: Count
    delay: Duration = 10.0
    factor: Factor = 2.0


AnyCommand = Annotated[
    Annotated[Program, Tag("<scalar>")] | Annotated[list[Text], Field(min_length=1), Tag("<list>")],
    either("must be a text (for the shell) or a list of words (run as it is)"),
]


class PollEntry(StrictModel):
    """The program that asks for the outcome of a deferred task, in place of its command, at intervals."""

    command: AnyCommand | None = None
    script: Program | None = None
    every: Annotated[Duration, AfterValidator(positive)] = 300.0
    timeout: Annotated[Duration, AfterValidator(positive)] = 300.0


AnyDepends = Annotated[
    Annotated[Reference, Tag("<scalar>")] | Annotated[DependsEntry, Tag("<mapping>")],
    either("must be a task's name or {task: name, when: …}"),
]
AnyCancels = Annotated[
    Annotated[Victim, Tag("<scalar>")] | Annotated[CancelsEntry, Tag("<mapping>")],
    either("must be a task's name or {task: name, only: unstarted}"),
]
AnyRetries = Annotated[
    Annotated[Count, Tag("<scalar>")] | Annotated[RetriesEntry, Tag("<mapping>")],
    either("must be a number or {max: 3, delay: 10s, factor: 2}"),
]
AnyCheckout = Annotated[
    Annotated[Literal["tree", "working-copy", "none"], Tag("<scalar>")]
    | Annotated[list[Path], Field(min_length=1), Tag("<list>")],
    either("must be tree, working-copy, none or a list of paths"),
]


class ListFile(StrictModel):
    """A list in a file of the archive, read at the run's revision."""

    file: Annotated[str, Written(list_file, minLength=1)]


AnyList = Annotated[
    Annotated[list[Any], Tag("<list>")]
    | Annotated[ListFile, Tag("<mapping>")]
    | Annotated[Literal["submission"], BeforeValidator(of_submission), Tag("<scalar>")],
    either(A_LIST),
]
AnyTrigger = Annotated[Literal["commit", "manual", "schedule", "submission"], BeforeValidator(as_written)]


class Fields(StrictModel):
    """The defaults for every task of a file: any field of a task except its name."""

    depends: OneOrMore[AnyDepends] | None = Field(None, description="Tasks to wait for.")
    cancels: OneOrMore[AnyCancels] | None = Field(None, description="Tasks that this one supersedes when it is ready.")
    command: AnyCommand | None = Field(None, description="A text for /bin/sh -c, or a list that is run as it is.")
    script: Program | None = Field(None, description="A whole script, in place of a command.")
    shell: Shell | None = Field(None, description="What runs the script; sh unless given.")
    env: Annotated[dict[Variable, Text], Field(json_schema_extra={"additionalProperties": False})] | None = Field(
        None, description="Environment variables."
    )
    timeout: Annotated[Duration, AfterValidator(positive)] | None = Field(
        None, description="Like 30m; 6h unless given."
    )
    grace: Duration | None = Field(None, description="Between SIGTERM and SIGKILL; 10s unless given.")
    retries: AnyRetries | None = Field(None, description="Automatic retries after a failure.")
    on: Annotated[OneOrMore[AnyTrigger], Field(min_length=1)] | None = Field(
        None, description="What starts it; [commit, manual] unless given."
    )
    schedule: Cron | None = Field(None, description="A cron expression of five fields.")
    timezone: Zone | None = Field(None, description="The schedule's time zone; UTC unless given.")
    paths: Annotated[OneOrMore[Path], AfterValidator(patterns)] | None = Field(
        None, description="Only where a changed path matches."
    )
    branches: Annotated[OneOrMore[Pattern], AfterValidator(patterns)] | None = Field(
        None, description="Only where the branch matches."
    )
    exclusive: Flag | None = Field(None, description="The next revision waits until it has settled.")
    hold: Flag | None = Field(None, description="It waits for a person's release in every run.")
    priority: Priority | None = Field(
        None, description="Among the archive's ready tasks the lowest goes first; 50 unless given."
    )
    deadline: Annotated[Duration, AfterValidator(positive)] | None = Field(
        None,
        description="How long it may stay deferred (exit code 75), from its first deferral; for ever unless given.",
    )
    poll: PollEntry | None = Field(None, description="How to learn the outcome once it is deferred (exit code 75).")
    foreach: AnyList | None = Field(
        None,
        description="A list, {file: PATH} for one in a file of the archive, or submission for that of a submission: one task for each of its items.",
    )
    key: Text | None = Field(None, description="The field that identifies an item; key, id or name unless given.")
    on_lost: Literal["rerun", "fail"] | None = Field(None, description="When its task manager died.")
    checkout: AnyCheckout | None = Field(None, description="Which files the task gets.")
    lock: Annotated[OneOrMore[Lock], Field(max_length=MOST_LOCKS)] | None = Field(
        None, description="Locks that it occupies while it runs: it waits until all of them have room."
    )
    runs_on: Annotated[OneOrMore[Label], Field(max_length=MOST_LABELS)] | None = Field(
        None, description="Labels that a task manager needs to run it, all of them."
    )
    scratch: Literal["run", "item"] | None = Field(
        None, description="A folder, ARKQUEUE_SCRATCH, that stays from task to task of its run, or of its item."
    )
    changes: Flag | None = Field(None, description="It gets a list of the files that differ from its base.")
    image: AnyImage | None = Field(
        None, description="The container image it runs in; the archive's default unless given."
    )
    mounts: OneOrMore[AnyMount] | None = Field(None, description="Persistent folders and volumes, by their names.")
    resources: ResourcesEntry | None = Field(None, description="What its container may use.")
    network: Network | None = Field(None, description="bridge, none, or a network's name; bridge unless given.")
    user: User | None = Field(None, description="Whom it runs as in its container; the image's own user unless given.")
    workdir: Workdir | None = Field(None, description="Where it begins, from the workspace on.")


class Task(Fields):
    """One task; without command and script it is a gate that passes."""

    name: Name = Field(description="Unique among all workflow files of a revision.")


class SubmissionEntry(StrictModel):
    """The JSON Schema of the payloads of submissions, in a file of the archive."""

    file: Annotated[str, Written(schema_file, minLength=1)] = Field(alias="schema")


class TaskFile(StrictModel):
    """A workflow file with defaults; without them it is just the list of tasks."""

    defaults: Fields | None = None
    submission: SubmissionEntry | None = Field(None, description="Once in all workflow files of a revision.")
    tasks: list[Task]


class _Published(GenerateJsonSchema):
    """Publishes that a field can be left out, because it has an internal default, but cannot be null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - titles that repeat the name help nobody
        return False


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a workflow file, for editors and other checkers; published as
    ``docs/workflow.schema.json``.
    """
    schema = TypeAdapter(list[Task] | TaskFile).json_schema(schema_generator=_Published)
    return {"$schema": _Published.schema_dialect, "title": "arkqueue workflow file", **schema}
