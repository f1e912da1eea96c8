"""Archives over HTTP: register, change, inspect."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fastapi import Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, field_validator

from arkqueue.archive_settings import USUAL_TIER, ArchiveSettings, read_settings
from arkqueue.archives import registration
from arkqueue.archives.retention import PurgedByAge, purge_by_age
from arkqueue.errors import Invalid, NotFound
from arkqueue.model import OF_BRANCH, USUAL_OCCASIONS, ArchiveId, ArchiveKind
from arkqueue.names import Name
from arkqueue.queue import archives, control, many, pauses, retrying
from arkqueue.queue.done import Done
from arkqueue.queue.tokens import Scope
from arkqueue.views import archives as views
from arkqueue.views import find
from arkqueue.views.archives import AcceptedView, ArchiveView, RewoundView
from arkqueue.views.rows import view_of
from arkqueue.web.access import Caller, admit
from arkqueue.web.api.answers import ArchiveAction, Refusal, on_archive, refusals
from arkqueue.web.api.calls import DryRun, calls
from arkqueue.web.api.verbs import Options

router = calls("archives", "/archives")

HOST = {"process", "process_user", "task_url", "follow", "images", "users", "networks"}
"""Settings that give an archive's tasks access to other things: processes on a host, passwords of
the configuration, and rights of containers.
"""
RETENTION = {"keep", "keep_logs"}
"""Settings that can be tried. They can also be changed for a removed archive, whose history is
still purged by age.
"""
MOST_OF_GLOB = 1000
"""The most characters of a glob in the settings of an archive."""
GLOBS = ("branches", "images", "users", "networks", "require_approval", "workflow_authors")

Revision = StrictInt | str
"""A number of the ledger, or a SHA or the beginning of one."""


class Settings(BaseModel):
    """The settings of an archive. Omitted fields stay unchanged."""

    model_config = ConfigDict(extra="forbid")

    branches: list[str] | None = Field(
        default=None, max_length=100, description="globs of Git branches; none: the main one"
    )
    process: bool | None = Field(default=None, description="whether its tasks may run as processes on a host")
    process_user: str | None = Field(
        default=None, max_length=100, description="the operating system's user that these run as; none: arkqueue's own"
    )
    author: str | None = Field(
        default=None, max_length=1000, description="who commits for its tasks; Git: Name <email>"
    )
    task_url: str | None = Field(default=None, max_length=4096, description="where working copies commit to")
    follow: list[str] | None = Field(
        default=None,
        max_length=100,
        description="URL prefixes of the externals, submodules and Git LFS files that working copies fetch; none: nothing",
    )
    image: str | None = Field(
        default=None,
        max_length=1000,
        description="the container image of tasks that name none; none: those are processes",
    )
    images: list[str] | None = Field(
        default=None, max_length=100, description="globs of allowed images; none: every one"
    )
    users: list[str] | None = Field(default=None, max_length=100, description="globs of allowed users; none: every one")
    networks: list[str] | None = Field(
        default=None, max_length=100, description="globs of allowed networks; none: bridge and none"
    )

    require_approval: list[str] | None = Field(
        default=None, max_length=100, description="globs of tasks that wait for a token of scope approve; none: none"
    )
    approval_not_author: bool | None = Field(
        default=None, description="whether these are approved by nobody who is the author of their revision"
    )

    workflow_authors: list[str] | None = Field(
        default=None,
        max_length=100,
        description="globs of the authors whose workflow files run without an approval; none: everybody's",
    )
    tier: StrictInt | None = Field(default=None, ge=0, le=100, description="archives of a lower tier go first; none: 5")
    max_running: StrictInt | None = Field(
        default=None, ge=1, le=100_000, description="how many of its attempts run at once; none: no limit"
    )
    keep: dict[str, str] | None = Field(
        default=None,
        max_length=10,
        description='how long its runs are kept, by their states: {"completed": "30d", "failed": "400d"}; of others, and with none: for ever',
    )
    keep_logs: str | None = Field(
        default=None, max_length=10, description="how long the logs of its attempts are kept: 90d; none: for ever"
    )

    notify: dict[str, list[str]] | None = Field(
        default=None,
        max_length=20,
        description='who is told of its runs, and of what: {"ann@example.org": ["failed", "fixed", "held", "completed", "stopped"], "https://hooks.example.org/ci": []}; without occasions: of all but completed; "branch=GLOB" among them: of runs on these branches alone',
    )

    @field_validator("notify")
    @classmethod
    def _receivers(cls, value: dict[str, list[str]] | None) -> dict[str, list[str]] | None:
        if value is not None and not all(0 < len(key) <= 1000 and len(words) <= 50 for key, words in value.items()):
            raise ValueError("a receiver is a text of at most 1,000 characters, with at most 50 occasions and branches")
        return value

    @field_validator(*GLOBS)
    @classmethod
    def _globs(cls, value: list[str] | None) -> list[str] | None:
        for glob in value or ():
            if len(glob) > MOST_OF_GLOB:
                raise ValueError(f"a glob has at most {MOST_OF_GLOB:,} characters, and one has {len(glob):,}")
            if not (glob and glob.isprintable()):
                raise ValueError("a glob is a printable text")
        return value

    @field_validator("follow")
    @classmethod
    def _prefixes(cls, value: list[str] | None) -> list[str] | None:
        if value is not None and not all(prefix and len(prefix) <= 1000 for prefix in value):
            raise ValueError("a prefix is a text of at most 1,000 characters")
        return value

    @field_validator("process_user")
    @classmethod
    def _user(cls, value: str | None) -> str | None:
        if value is not None and (not value or not value.isprintable() or " " in value):
            raise ValueError("a user has a name without spaces")
        return value

    @field_validator("images", "users", "networks")
    @classmethod
    def _allows(cls, value: list[str] | None) -> list[str] | None:
        if value and any(glob.startswith("!") for glob in value):
            raise ValueError("a pattern that begins with '!' is not possible here: list the allowed values")
        return value

    def applied_to(self, present: ArchiveSettings) -> ArchiveSettings:
        given = self.model_dump(include=self.model_fields_set & set(Settings.model_fields))
        given |= {key: tuple(given[key] or ()) for key in (*GLOBS, "follow") if key in given}
        given |= {key: bool(given[key]) for key in ("process", "approval_not_author") if key in given}
        if "keep" in given:
            given["keep"] = given["keep"] or {}
        if "notify" in given:
            notify = given["notify"] or {}
            given["notify"] = {who: list(dict.fromkeys([*_occasions(when), *when])) for who, when in notify.items()}
        if given.get("tier", 0) is None:
            given["tier"] = USUAL_TIER
        return replace(present, **given)


def _occasions(words: list[str]) -> list[str]:
    """The occasions of a receiver, of which there may be none but branches."""
    return [] if any(not word.startswith(OF_BRANCH) for word in words) else list(map(str, USUAL_OCCASIONS))


class NewArchive(Settings):
    """An archive to register. ``start``: the revision after which its ledger begins; without it,
    the head.
    """

    name: str
    url: str = Field(min_length=1, max_length=4096)
    kind: ArchiveKind | None = None
    start: Revision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedView(ArchiveView):
    """An archive after a change of its settings. ``goes``: for a trial of `keep` and `keep_logs`,
    what these rules would purge now.
    """

    goes: PurgedByAge | None


class Rewind(BaseModel):
    """The revision at which the ledger starts anew."""

    model_config = ConfigDict(extra="forbid")

    revision: Revision
    branch: str | None = None


class Correction(BaseModel):
    """A revision of the ledger whose author or date was corrected in the repository."""

    model_config = ConfigDict(extra="forbid")

    revision: StrictInt
    branch: str | None = None


class Waiver(BaseModel):
    """Waive every failure of a task up to a revision."""

    model_config = ConfigDict(extra="forbid")

    task: str
    until: int = Field(ge=0)
    branch: str | None = None


class NewPause(BaseModel):
    """The reason of a pause, or of its end."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=1000)


class Waived(BaseModel):
    """The number of failures that were waived, and the refusals of others."""

    waived: int
    refused: list[Refusal] = []


@router.get("")
def list_archives(request: Request) -> list[ArchiveView]:
    """The watched archives."""
    caller = admit(request, Scope.READ)
    return views.archives(caller.session, caller.token.archives)


@router.post("", status_code=201)
def add_archive(request: Request, response: Response, new: NewArchive) -> ArchiveView:
    """Register an archive. Its repository is opened now, with the rights of the server."""
    caller = admit(request, Scope.ADMIN)
    caller.require_every_archive("registering one, which may be of any repository,")
    added = registration.add(
        caller.session,
        caller.configuration,
        name=new.name,
        url=new.url,
        kind=new.kind,
        start=None if new.start is None else str(new.start),
        settings=new.applied_to(ArchiveSettings()),
        by=caller.by,
    )
    request.app.state.watched.forget()
    response.headers["Location"] = f"/api/v1/archives/{new.name}"
    return views.archive(caller.session, added)


@router.get("/{name}")
def show_archive(request: Request, name: str) -> ArchiveView:
    """An archive with its branches, its schedules and its trouble."""
    caller = admit(request, Scope.READ)
    return views.archive(caller.session, caller.archive(name))


@router.patch("/{name}")
def change_archive(request: Request, name: str, settings: Settings, dry_run: DryRun = False) -> ChangedView:
    """Change the settings of an archive. A removed archive has only `keep` and `keep_logs`; these two can be tried with `dry_run`."""
    caller = admit(request, Scope.ADMIN)
    if given := sorted(settings.model_fields_set & HOST):
        caller.require_every_archive(f"setting {given[0]}, with which its tasks may reach others,")
    others = sorted(settings.model_fields_set - RETENTION)
    if dry_run and others:
        raise Invalid("the request", f"tries {others[0]}", "Only keep and keep_logs can be tried.")
    archive = _watched(caller, name) if others else caller.archive(name)
    present = read_settings(archives.one(caller.session, archive).settings, name)
    changed = settings.applied_to(present)
    with caller.acting(dry_run, archive=archive) as caller:
        registration.change_settings(caller.session, caller.configuration, archive, changed, caller.by)
        shown = views.archive(caller.session, archive)
        goes = PurgedByAge() if dry_run else None
        if dry_run and (changed.keep or changed.keep_logs):
            goes = purge_by_age(caller.session, archive, caller.by)
        return view_of(shown, ChangedView, goes=goes)


@router.delete("/{name}")
def remove_archive(request: Request, name: str, dry_run: DryRun = False) -> views.Contents:
    """Stop watching an archive. Its unstarted tasks are canceled; its history stays. The answer says
    what the archive had before.
    """
    caller = admit(request, Scope.ADMIN)
    archive = _watched(caller, name)
    contents = views.contents_of(caller.session, archive)
    if not dry_run:
        archives.remove(caller.session, archive, caller.by)
        request.app.state.watched.forget()
    return contents


@router.post("/{name}/sync", status_code=202)
def sync_archive(request: Request, name: str) -> ArchiveView:
    """Scan the repository now. A stopped archive is resumed if its repository is the registered one
    again.
    """
    caller = admit(request, Scope.OPERATE)
    archive = _watched(caller, name)
    registration.sync(caller.session, caller.configuration, archive, caller.by)
    return views.archive(caller.session, archive)


@router.post("/{name}/pause")
def pause_archive(request: Request, name: str, pause: NewPause = NewPause()) -> ArchiveView:  # noqa: B008  frozen by use
    """Pause an archive: none of its tasks starts. Running tasks go on, and revisions are read and planned."""
    caller = admit(request, Scope.OPERATE)
    archive = _watched(caller, name)
    pauses.pause(caller.session, archive, pause.reason, caller.by)
    return views.archive(caller.session, archive)


@router.post("/{name}/resume")
def resume_archive(request: Request, name: str, end: NewPause = NewPause()) -> ArchiveView:  # noqa: B008  frozen by use
    """End the pause of an archive."""
    caller = admit(request, Scope.OPERATE)
    archive = _watched(caller, name)
    pauses.resume(caller.session, archive, name, caller.by, end.reason)
    return views.archive(caller.session, archive)


@router.post("/{name}/rewind")
def rewind_archive(request: Request, name: str, rewind: Rewind, dry_run: DryRun = False) -> RewoundView:
    """Start the ledger anew, for a repository that went back in time, or was replaced."""
    caller = admit(request, Scope.ADMIN)
    archive, to = _watched(caller, name), str(rewind.revision)
    rewound = registration.rewind(
        caller.session, caller.configuration, archive, to, caller.by, branch=rewind.branch, dry_run=dry_run
    )
    if not dry_run:
        request.app.state.watched.forget()
    return rewound


@router.post("/{name}/accept")
def accept_correction(request: Request, name: str, correction: Correction) -> AcceptedView:
    """Accept the present author and date of a Subversion revision. A stopped archive is resumed if
    its repository is the registered one.
    """
    caller = admit(request, Scope.ADMIN)
    archive = _watched(caller, name)
    meant = Name(name, str(correction.revision), correction.branch)
    place = find.find_revision(caller.session, archive, meant)
    note = registration.accept(caller.session, caller.configuration, archive, place.id, caller.by)
    return view_of(views.archive(caller.session, archive), AcceptedView, note=note)


@router.post("/{name}/skip")
def waive_until(request: Request, name: str, waiver: Waiver, dry_run: DryRun = False) -> Waived:
    """Waive every failure of a task up to a revision, so that the tasks which wait for it go on."""
    caller = admit(request, Scope.OPERATE)
    with caller.acting(dry_run, archive=caller.archive(name)) as caller:
        done = waive_failures(caller, name, waiver)
        return Waived(waived=len(done.tasks), refused=refusals(caller, done))


def waive_failures(caller: Caller, name: str, waiver: Waiver) -> Done:
    """Waive every failure of a task up to a revision."""
    archive, task = caller.archive(name), waiver.task
    branch = find.find_branch(caller.session, archive, waiver.branch, name)
    find.check_task_name(caller.session, branch, task, name)
    return control.skip_until(caller.session, archive, branch, task, waiver.until, caller.by, caller.approver)


def _watched(caller: Caller, name: str) -> ArchiveId:
    archive = caller.archive(name)
    if archives.one(caller.session, archive).removed_at is not None:
        raise NotFound(
            f"archive {name}",
            "was removed",
            "Its history stays readable as long as its keep and keep-logs say. To watch it again, add it again.",
        )
    return archive


@router.post("/{name}/retry")
def retry_archive(request: Request, name: str, options: Options, dry_run: DryRun = False) -> ArchiveAction:
    """Retry the failed tasks of an archive, the oldest runs first. ``failed`` has to be set.
    Outdated tasks are refused.
    """
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    options.check("failed")
    if not options.the_failed():
        raise Invalid(
            "the request", "would retry all tasks of an archive", "Set failed: only failed tasks can be retried so."
        )
    with caller.acting(dry_run, archive=archive) as caller:
        done = many.retry_failed_of_archive(caller.session, archive, caller.by, caller.approver)
        return on_archive(caller, archive, done)


@router.post("/{name}/refresh")
def refresh_archive(request: Request, name: str, dry_run: DryRun = False) -> ArchiveAction:
    """Poll all deferred tasks of an archive now."""
    caller = admit(request, Scope.OPERATE)
    archive = caller.archive(name)
    with caller.acting(dry_run, archive=archive) as caller:
        return on_archive(caller, archive, retrying.refresh_archive(caller.session, archive, caller.by))
