"""Every page of the router, on an installation with something of everything, in which strangers have
written markup, scripts, and bidirectional and control characters wherever they can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from starlette.routing import Match, Route

from arkqueue.db.session import Session
from arkqueue.model import ArchiveId, End, RunId
from arkqueue.queue import archives, backfill, claim, control, deletion, holds, locks, notifications, sign_ins, tokens
from arkqueue.queue.tokens import Scope
from arkqueue.web.pages.routes import routes
from tests.builders import HOST, PROCESS, AnArchive, a_workflow, an_archive, faulty, no_lists, the_archive
from tests.db.outbox import choose, judge, set_receivers
from tests.db.test_backfills import fill
from tests.system.pages.conftest import HOSTILE, HOSTILE_ITEM, stay_alive

ITEM: Final = quote(HOSTILE_ITEM, safe="")
LOG: Final = f"{HOSTILE}\n\x1b[1;32mgreen\x1b[0m \u2066isolated\u2069 \x9b31m\x00 end\r\n{'x' * 3000}\n".encode()
TASKS: Final = {
    "index": "",
    "pdf": "depends: [index]",
    "a-task-with-a-long-name-that-somebody-always-writes": "depends: [pdf]",
}

PAGES: Final[Mapping[str, Sequence[str]]] = {
    "/": ("/", "/?page=2"),
    "/-/sign-in": ("/-/sign-in",),
    "/-/search": (f"/-/search?q={quote('<script>')}", "/-/search?q=nothing-like-it", "/-/search?q=tile", "/-/search?author=script"),
    "/-/report": ("/-/report?of=papers@2",),
    "/-/locks": ("/-/locks",),
    "/-/schedules": ("/-/schedules",),
    "/-/task-managers": ("/-/task-managers",),
    "/-/tokens": ("/-/tokens",),
    "/-/mine": ("/-/mine", "/-/mine?author=script"),
    "/-/sessions": ("/-/sessions",),
    "/-/notifications": ("/-/notifications", "/-/notifications?state=sent"),
    "/-/audit-log": ("/-/audit-log",),
    "/-/trigger": ("/-/trigger?of=papers", "/-/trigger?of=papers@2", "/-/trigger?of=papers&first=2"),
    "/-/archives/{name}": ("/-/archives/papers",),
    "/-/settings/{name}": ("/-/settings/papers", "/-/settings/papers?open=rewind"),
    "/-/add-archive": ("/-/add-archive",),
    "/-/submit/{name}": ("/-/submit/copies",),
    "/{address:path}": (
        # archives: with runs, without any, with faults, with folded lines; filters
        "/papers", "/papers?state=unhandled", f"/papers?message={quote(HOSTILE)}", "/papers?columns=index&gone=yes", "/thesis",
        "/maps", "/drawings", "/copies", "/copies?open=FOLDED", "/gone",
        # runs: with items, deleted, faulty, planned for a submission
        "/papers@2", "/papers@4", "/papers@4?list=tile", "/papers@4?list=tile&state=failed", "/papers@4?list=tile&state=held", "/thesis@2", "/copies@5",
        "/copies@4.2",
        # tasks: with a log, failed, running, held, of a list; items; a backfill
        "/papers@2/index", "/papers@3/index", "/papers@3/index?find=end", "/papers@3/deposit", "/papers@3/other", f"/papers@4/tile/{ITEM}", f"/papers@4/*/{ITEM}",
        "/papers@4/*/b", "/papers@fill:1",
    ),
}  # fmt: skip
"""The addresses of every page by the path of its route."""

MISSING: Final = ("/nothing", "/papers@2/indx", "/papers@99", "/-/nothing", "/-/settings/nothing", "/papers@fill:9", "/-/report?of=papers@99")  # fmt: skip
"""Addresses at which there is nothing."""

NO_PAGES: Final[Mapping[str, str]] = {
    "/-/openid": "leads to the provider (test_openid.py)",
    "/-/openid/return": "leads on from the provider (test_openid.py)",
    "/-/openid/leave": "leads to the provider (test_openid.py)",
    "/-/openid/logout": "is called by the provider (test_openid.py)",
    "/-/live": "sends events (test_live.py)",
    "/-/log/{attempt}": "is a download (test_pages.py)",
    "/-/log/{attempt}/lines": "is a part of the page of a task",
    "/-/payload": "is a download (test_submitting.py)",
    "/-/export": "is a download (test_verbs.py)",
    "/-/sign-out": "leads to the sign-in (test_signing_in.py)",
}
"""The routes that are no pages, and why."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A form whose answer is a page. ``status``: that of the answer; ``words``: a text of it."""

    action: str
    status: int
    words: str
    fields: Mapping[str, str] = field(default_factory=dict)


def _act(verb: str, name: str, status: int, words: str, **fields: str) -> Sent:
    return Sent("/-/act", status, words, {"verb": verb, "name": name, "back": f"/{name}", **fields})


def _administer(act: str, name: str, status: int, words: str, **fields: str) -> Sent:
    return Sent(f"/-/act/{act}", status, words, {"name": name, "verb": act, "back": "/-/locks", **fields})


LIST: Final = "papers@4/tile/*"
FORMS: Final[Mapping[str, Sequence[Sent]]] = {
    "/-/sign-in": (Sent("/-/sign-in", 403, "unknown or revoked", {"token": HOSTILE, "next": "/papers"}),),
    "/-/act": (
        # what would happen
        _act("cancel", "papers@4", 200, "would be stopped"),
        _act("delete", "papers@2", 200, "Delete papers@2"),
        _act("purge", "papers@2", 200, "for good"),
        _act("purge-outputs", "papers@2/index", 200, "outputs"),
        _act("purge-log", "papers@2/index", 200, "log"),
        _act("trigger", "papers@3", 200, "Run papers@3", task="index"),
        _act("trigger", "papers", 200, "revisions", task="index", first="2", last="3"),
        _act("cancel", LIST, 200, "would be stopped"),
        _act("skip", LIST, 200, "would", state="failed"),
        _act("retry", "papers", 200, "would"),
        _act("restart", "papers@3/other", 200, "would be stopped"),
        # refusals
        _act("retry", "papers@3/deposit", 409, "papers@3/deposit"),
        _act("restart", "papers@2/index", 409, "papers@2/index"),
        _act("delete", "papers@3", 409, "papers@3"),
        _act("hold", "papers@2/index", 409, "papers@2/index"),
        _act("trigger", "papers@99", 404, "papers@99", task="index"),
        _act("trigger", "papers@3", 422, "nothing", task="nothing"),
        _act("trigger", "papers", 422, "two", task="index", first="two"),
        _act("prioritize", "papers@4", 422, "priority", text=HOSTILE_ITEM),
        _act("note", "papers@2", 422, "characters", text="x" * 10_001),
        _act("release", "papers@fill:1", 409, "papers@fill:1"),
        _act("retry", "nothing@1/a", 404, "nothing"),
        _act("no-such-verb", "papers@2/index", 404, "no-such-verb"),
        Sent("/-/act", 403, "was not sent from a page", {"verb": "cancel", "name": "papers@4", "form": "0" * 64}),
    ),
    "/-/act/{act}": (
        _administer("rewind", "papers", 502, "there is no Subversion repository", revision="3"),
        _administer("waive", "papers", 200, "waive", task="index", revision="4"),
        _administer("remove-archive", "papers", 200, "papers", text="papers"),
        _administer("remove-archive", "papers", 422, "papers", text=HOSTILE_ITEM),
        _administer("make-token", HOSTILE_ITEM, 200, "The secret of", scope="read"),
        _administer("make-token", "", 422, "Nothing was changed", scope="read"),
        _administer("add-archive", HOSTILE_ITEM, 422, "Nothing was changed", url="file:///nowhere"),
        _administer("set-lock", "papers/tex", 422, "tasks at once", capacity=HOSTILE_ITEM),
        _administer("resume-lock", "papers/web", 409, "is not paused"),
        _administer("drain", "nowhere", 404, "nowhere"),
        _administer("resend", "99", 404, "99"),
        _administer("revoke-token", "99", 404, "99"),
        _administer("end-sessions", "ff", 404, "session"),
        _administer("change-settings", "papers", 422, "out of date", was="{}"),
        _administer("no-such-form", "", 404, "no-such-form"),
    ),
    "/-/submit/{name}": (
        Sent("/-/submit/copies", 200, "No, go back", {"text": f'["{HOSTILE_ITEM}"]', "kind": "json", "preview": "yes"}),
        Sent("/-/submit/copies", 422, "", {"text": "{", "kind": "json"}),
    ),
}  # fmt: skip
"""The forms whose answers are pages, by the path of their route: previews and refusals."""

SILENT: Final = frozenset({
    "/-/sign-in", "/-/search?q=nothing-like-it", "/-/schedules", "/-/notifications?state=sent", "/-/add-archive", "/-/submit/copies",
    "/-/search?q=tile", "/-/mine", "/-/trigger?of=papers", "/-/trigger?of=papers@2", "/-/trigger?of=papers&first=2", "/-/settings/papers",
    "/-/settings/papers?open=rewind", "/thesis", "/thesis@2", "/maps", "/drawings", "/copies@4.2", "/papers@3/deposit", "/papers@3/other", "/papers@4/*/b", "/docs",
})  # fmt: skip
"""The pages that show no text of a stranger."""


def of_router() -> dict[str, set[str]]:
    """The paths of the router's routes, and the methods of each."""
    found: dict[str, set[str]] = {}
    for route in routes():
        if isinstance(route, Route):
            found.setdefault(route.path, set()).update(route.methods or ())
    return found


def route_of(address: str, method: str = "GET") -> str:
    """The path of the route that answers an address."""
    path = address.partition("?")[0]
    scope = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    return next(one.path for one in routes() if isinstance(one, Route) and one.matches(scope)[0] is Match.FULL)


def an_installation(session: Session) -> AnArchive:
    """Everything that `PAGES` names."""
    claim.register(session, PROCESS, HOST, "node2", 4, fault=HOSTILE, labels=["tape"])
    stay_alive(session)
    archive = an_archive(session)
    set_receivers(archive, ci=["failed"])
    archive.commit(TASKS, author=HOSTILE)
    archive.write("index@2", LOG)
    archive.end("index@2", 1, message=HOSTILE, outputs={"pages": 3, "said": HOSTILE})
    control.note(session, HOSTILE, HOSTILE, run=RunId(archive.run_id(2)), task=archive.task("index@2"))
    judge(session)
    (delivery,) = choose(archive)
    notifications.record_failure(session, delivery, HOSTILE, is_silent=True)
    archive.commit(
        TASKS | {"nightly": 'schedule: "0 3 * * *"', "deposit": "lock: [tex]\nhold: true", "other": "lock: [tex]", "after": "lock: [tex]"},
        author=HOSTILE,
    )  # fmt: skip
    archive.write("index@3", LOG * 400)
    archive.claim("other@3")
    locks.pause(session, ArchiveId(archive.id), "tex", HOSTILE, HOSTILE)
    archive.commit(a_workflow({"tile": f"foreach: [a, b, '{HOSTILE_ITEM}']", "index": ""}), author=HOSTILE)
    deletion.delete_item(session, RunId(archive.run_id(4)), "b", HOSTILE)
    archive.end(f"tile/{HOSTILE_ITEM}@4", 1, message=HOSTILE)
    holds.hold_run(session, RunId(archive.run_id(3)), HOSTILE, HOSTILE)
    fill(archive, 2, 3, "index")
    while backfill.plan(session, no_lists) == 0.0:
        pass
    an_archive(session, "thesis").commit(faulty())
    _copies(session)
    an_archive(session, "maps")
    an_archive(session, "drawings", tasks=a_workflow(TASKS))
    gone = an_archive(session, "gone")
    gone.commit(TASKS, author=HOSTILE)
    archives.stop(session, ArchiveId(gone.id), HOSTILE)
    archive.sql("update revision set message = %s where author = %s", f"{HOSTILE}\n\n{HOSTILE}\nmore", HOSTILE)
    token, _ = tokens.create(
        session, name=HOSTILE_ITEM, scope=Scope.APPROVE, archives=None, by=HOSTILE, authors=[HOSTILE_ITEM]
    )
    sign_ins.sign_in(session, token, HOSTILE)
    return archive


def _copies(session: Session) -> None:
    """An archive with runs by hand, which the grid folds, a deleted run, and a submission."""
    copies = an_archive(session, "copies")
    tasks = {"index": "", "tile": "foreach: [a, b]", "box": "on: submission\nforeach: submission"}
    copies.commit(tasks, author=HOSTILE)
    for run in (2, 3):
        copies.trigger(2, "index")
        copies.run(f"index@2.{run}")
    copies.commit(tasks, author=HOSTILE)
    copies.cancel("index@3")
    copies.commit(tasks)
    copies.trigger(4, "index")
    copies.end("index@4.2", None, End.NOT_STARTED, message="deleted")
    deletion.delete_run(session, RunId(copies.run_id(4, 2)), "ann")
    copies.commit(tasks, author=HOSTILE)
    copies.submit(f'["{HOSTILE_ITEM}"]', sender_id="box 7")


def folded(session: Session) -> int:
    """The run that stands for a folded line of ``/copies?open=FOLDED``."""
    return the_archive(session, "copies").run_id(2, 2)
