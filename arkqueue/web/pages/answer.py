"""Answers pages: a template with its contents, or the contents as JSON; an error as a page; and the
security headers.
"""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import psycopg
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from pydantic_core import to_jsonable_python
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from arkqueue.durations import age, age_of, took
from arkqueue.errors import ArkqueueError, Busy, Forbidden, Invalid, NotFound
from arkqueue.names import dependency_in_words, page_path
from arkqueue.states import RunState
from arkqueue.text import LONGEST as LONGEST_LINE
from arkqueue.text import name_visible, one_line, shortened, visible
from arkqueue.views.reasons import Reason, Why
from arkqueue.views.search import LONGEST
from arkqueue.web import problems
from arkqueue.web.pages import static_files
from arkqueue.web.pages.helping import STOP_FORMS
from arkqueue.web.pages.log_lines import marked
from arkqueue.web.pages.nearby import Nearby, nearby
from arkqueue.web.pages.visitor import SignInNeeded, Visitor, anybody_of, archive_of, visitor_of

log = logging.getLogger("arkqueue")

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
SIGN_IN: Final = "/-/sign-in"
SHAPES: Final = {
    "completed": "completed", "running": "running", "processing": "running", "reporting": "running", "waiting": "waiting",
    "ready": "waiting", "pending": "waiting", "planning": "waiting", "deferred": "waiting", "failed": "failed", "rejected": "failed",
    "canceled": "canceled", "superseded": "canceled", "skipped": "skipped", "held": "held", "deleted": "left", "baseline": "left", "failing": "failing",
}  # fmt: skip
"""The shape, one of nine, for each state of a task or a run. ``failing``: a run that continues
although tasks of it have failed.
"""


LONGEST_NAME: Final = 32
"""The most characters of a task's name in a table: its beginning and its end, because names differ
there.
"""
_CLOCK: Final = re.compile(r"(?<= for )\d+(?::\d\d){1,2}\b")
_AGE: Final = re.compile(r"[\d,]+ (?:d|h|min) ago|just now")
_CODE: Final = re.compile("`([^`\n]+)`")
_LOCK: Final = re.compile(r"the lock ([^\s,;<>]+)")
_BAR: Final = Markup(
    '<svg class="bar" viewBox="0 0 60 5" aria-hidden="true" data-usual="{}"><rect width="60" height="5" rx="2"/>'
    '<rect width="{}" height="5" rx="2"/></svg>'
)
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9_./:@~%,;() -]*")


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a page: a template and the names that it uses. JSON has the same names,
    without those that begin with ``_``.
    """

    template: str
    names: Mapping[str, Any]


def page(build: Callable[[Visitor, Request], Shown | Response], back: str = "") -> Callable[[Request], Response]:
    """An endpoint that shows the result of ``build``, which runs in a thread. ``back``: the page to
    which a necessary sign-in leads, and the target of the button of a refusal; empty: this page,
    and the overview.
    """

    def endpoint(request: Request) -> Response:
        visitor = None
        if _is_from_browser(request) and "format" not in request.query_params:
            request.state.as_of = request.app.state.live.as_of()
        try:
            visitor = visitor_of(request).at(_shown_archive(request))
            request.state.token = visitor.caller.token
            visitor, shown = _built(build, visitor, request)
        except SignInNeeded:
            return sign_in_first(request, back)
        except ArkqueueError as error:
            if visitor is not None and visitor.is_anybody and isinstance(error, NotFound | Forbidden):
                # A visitor without rights does not learn whether the page exists.
                return sign_in_first(request, back)
            return refused_page(request, visitor, error, back or "/")
        except psycopg.DataError as error:
            log.info("refused: %s", error)
            return refused_page(request, visitor, problems.unstorable(), back or "/")
        return shown if isinstance(shown, Response) else answer(request, visitor, shown)

    return endpoint


def _built(
    build: Callable[[Visitor, Request], Shown | Response], visitor: Visitor, request: Request
) -> tuple[Visitor, Shown | Response]:
    """The contents of a page, and the visitor who sees them: a page of a public archive is also for
    somebody who has signed in with rights for other archives.
    """
    try:
        return visitor, build(visitor, request)
    except NotFound:
        if visitor.sees_all or request.method == "POST":
            raise
        with suppress(ArkqueueError, SignInNeeded):
            if (anybody := anybody_of(request)) is not None and not visitor.is_anybody:
                return anybody, build(anybody, request)
        request.state.token = visitor.caller.token
        raise


def _shown_archive(request: Request) -> str:
    """The archive of a page; empty if it has none."""
    return archive_of(_shown_address(request))


def _shown_address(request: Request) -> str:
    """The name of the page's subject, as on the command line; empty if it has none."""
    if "address" in request.path_params:
        return sent_path(request).lstrip("/")
    return str(request.path_params.get("name", "")) or asked(request, "of")


def _nearby(request: Request, visitor: Visitor | None) -> Nearby | None:
    """The things near the address of a request. None: the visitor may not know them, or the
    database does not answer.
    """
    if visitor is None:
        return None
    try:
        return nearby(visitor.caller, _shown_address(request))
    except (ArkqueueError, psycopg.Error):
        return None


def to_sign_in(target: str) -> str:
    """The address of the sign-in that leads to a page."""
    return f"{SIGN_IN}?{urlencode({'next': local(target)})}"


def sign_in_first(request: Request, back: str = "") -> Response:
    """Lead a browser to the sign-in, and from there to ``back``, or, if that is empty, to the
    requested page.
    """
    if wants_json(request):
        refused = problems.Refused(401, "the request", "carries no token", "Send it as: Authorization: Bearer TOKEN")
        return problems.of_error(refused)
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(to_sign_in(back or target), 303, HEADERS)


def answer(request: Request, visitor: Visitor | None, shown: Shown, status: int = 200) -> Response:
    """A page, or its JSON if the request asks for that."""
    if wants_json(request):
        plain = {name: value for name, value in shown.names.items() if not name.startswith("_")}
        document = to_jsonable_python(plain)
        if visitor is not None and visitor.is_anybody:
            _leave_out(document)
        return _compressed(request, JSONResponse(document, status, HEADERS))
    text = (
        environment()
        .get_template(shown.template)
        .render(
            shown.names,
            visitor=visitor,
            version=static_files.version(),
            # The page of a refused form is not at the address to which the form is sent.
            here=shown.names.get("_here", sent_path(request)),
            served_at=datetime.now(UTC),
            as_of=getattr(request.state, "as_of", ""),
        )
    )
    return _compressed(request, HTMLResponse(text, status, HEADERS))


_NOT_PUBLIC: Final = {
    "repository": ("url", "repository", "uuid", "folder", "settings", "remedy"),
    "lease_until": ("process", "host", "lease_until"),
}
"""The fields that JSON leaves out for a visitor who has not signed in, by a field that marks the
document. ``repository`` marks an archive: the receivers of notifications in its settings are
persons. ``lease_until`` marks an attempt, which has the ids of its task manager.
"""


def _leave_out(document: Any) -> None:
    """Remove from JSON the fields that a visitor who has not signed in must not see."""
    if isinstance(document, dict):
        for names in [names for name, names in _NOT_PUBLIC.items() if name in document]:
            for name in names:
                document.pop(name, None)
        document = list(document.values())
    for part in document if isinstance(document, list) else ():
        _leave_out(part)


def _compressed(request: Request, response: Response) -> Response:
    """A long answer, compressed if the client accepts that. The secret of a form differs at each
    address, so it is safe that a page repeats a stranger's words beside it (`visitor`).
    """
    response.headers["Vary"] = "Accept-Encoding, Accept"
    if len(response.body) < 2000 or "gzip" not in request.headers.get("accept-encoding", ""):
        return response
    response.body = gzip.compress(response.body, 5)
    response.headers["Content-Encoding"] = "gzip"
    response.headers["Content-Length"] = str(len(response.body))
    return response


def sent_path(request: Request) -> str:
    """The path of a request as it was sent: an encoded slash is part of a name."""
    raw: bytes = request.scope.get("raw_path") or quote(request.url.path).encode()
    return raw.partition(b"?")[0].decode("ascii", "replace")


def refused_page(
    request: Request,
    visitor: Visitor | None,
    error: ArkqueueError,
    again: str = "/",
    other: str = "",
    filled: Callable[[], Shown] | None = None,
) -> Response:
    """An error as a page: the thing, the fault and the remedy. ``again``: the target of its button.
    ``other``: where one signs in as another person. ``filled``: the page of the refused form, with
    the input of the person.
    """
    as_problem = problems.of_error(error)
    if wants_json(request):
        return as_problem
    near = _nearby(request, visitor) if isinstance(error, NotFound | Invalid) else None
    if as_problem.status_code >= 500:
        is_busy = isinstance(error, Busy)
        log.log(logging.WARNING if is_busy else logging.ERROR, "%s", error)
        if as_problem.status_code == 503 and not is_busy:  # nobody is to learn where the database is
            error = problems.Refused(503, "the database", "does not answer", "Try again.")
    names = {"error": error, "status": as_problem.status_code, "_again": again, "_other": other, "_near": near}
    try:
        shown = filled() if filled else Shown("error.html", {})
    except (ArkqueueError, psycopg.Error):  # the page of the form cannot be made now
        shown = Shown("error.html", {})
    return answer(request, visitor, Shown(shown.template, {**names, **shown.names}), as_problem.status_code)


def mistake_page(request: Request, error: Exception) -> Response | None:
    """The page for a browser about an error that no page has handled: a wrong address, or an
    internal error of arkqueue. None: the client is a program.
    """
    if not _is_from_browser(request):
        return None
    if isinstance(error, HTTPException):
        return refused_page(request, None, problems.of_framework(request, error, "Go to the overview."))
    log.error("%s %s failed", request.method, name_visible(request.url.path[:LONGEST_LINE]), exc_info=error)
    return refused_page(request, None, problems.mistake())


def asked(request: Request, name: str) -> str:
    """A text of an address's query, shortened and without characters that the database cannot
    store; empty if it is not given.
    """
    return request.query_params.get(name, "").replace("\0", "").strip()[:LONGEST]


def asked_id(request: Request, name: str) -> int | None:
    """An id in an address's query; None if there is none that the database could have."""
    text = asked(request, name)
    return int(text) if text.isdecimal() and len(text) < 19 else None


def local(target: str) -> str:
    """An address on this server, whatever a link or a form contains."""
    is_local = target.startswith("/") and not target.startswith("//") and "\\" not in target and target.isprintable()
    return quote(target, safe="/:@.~%?=&+,-_*") if is_local else "/"


def _is_from_browser(request: Request) -> bool:
    """Whether a request is for a page that somebody looks at."""
    return "text/html" in request.headers.get("accept", "")


def wants_json(request: Request) -> bool:
    """Whether a request asks for the JSON of a page."""
    asked = request.query_params.get("format")
    return asked == "json" or (asked is None and request.headers.get("accept", "").startswith("application/json"))


@cache
def environment() -> Environment:
    """The templates, with the functions and filters that they use."""
    made = Environment(
        loader=PackageLoader("arkqueue.web.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # A template from an upgrade must not be used by the code of a running older server.
        auto_reload=False,
    )
    made.filters |= {
        "line": lambda text: one_line(str(text)), "plain": lambda text: visible(str(text)), "coded": coded, "told": told, "short": short, "unquoted": unquote, "ago": ago, "until": until, "took": clock, "clocks": clocks, "aged": aged,
        "person": person, "sentence": as_sentence, "path": page_path, "dependency": dependency_in_words, "relative": relative, "number": lambda n: f"{n:,}", "shape": shape_of, "run_words": run_words, "run_state": run_state, "run_sentence": run_sentence, "drawn": drawn_state, "marked": marked,
    }  # fmt: skip
    made.globals["stop_forms"] = STOP_FORMS
    return made


def coded(text: object) -> Markup:
    """A sentence of arkqueue. Its parts between backticks are code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(visible(str(text))))))


def told(reason: Reason) -> Markup:
    """The sentence of a reason, with a link for each task and for the lock that it names."""
    text = str(coded(reason.text))
    pages = {str(escape(visible(name))): escape(page_path(name)) for name in reason.tasks}
    if pages:
        names = "|".join(re.escape(name) for name in sorted(pages, key=len, reverse=True))
        named = re.compile(rf"(?<![\w@/.:-])(?:{names})(?![\w/@-])")
        text = named.sub(lambda found: f'<a href="/{pages[found[0]]}"><u>{found[0]}</u></a>', text)
    if reason.kind in (Why.LOCKED, Why.LOCK_PAUSED):
        text = _LOCK.sub(r'the lock <a href="/-/locks"><u>\1</u></a>', text, count=1)
    return Markup(text)


def short(label: str) -> str:
    """The name of a task inside its run, without the middle of a long one. An item's key is whole:
    the keys of a list often begin and end alike.
    """
    name, slash, key = label.partition("/")
    return f"{shortened(name, LONGEST_NAME)}{slash}{key}"


def in_markup(text: str) -> str:
    """A text on one line, escaped for markup. Most texts of a grid need no escape, so they are
    checked only once.
    """
    return text if len(text) <= LONGEST_LINE and _PLAIN_TEXT.fullmatch(text) else str(escape(one_line(text)))


def relative(edges: str, id: int) -> str:
    """The edges to a task, with the difference between the task's id and each source's id, which is
    short and equal in all rows: ``d12 x500``.
    """
    return " ".join([f"{edge[0]}{id - int(edge[1:])}" for edge in edges.split()])


def run_words(run: Any) -> str:
    """The state of a run in words."""
    return "watching begins here" if run.baseline else f"{run.state}{', with failures' * run.failing}"


def run_state(run: Any) -> str:
    """The state of a run as it is drawn: a baseline ran nothing, so it is not drawn as completed."""
    return "baseline" if run.baseline else "failing" if run.failing else str(run.state)


def run_sentence(run: Any) -> str:
    """The state of a run as the end of a sentence: ``failed``, ``is processing``."""
    if run.settled_at is None:
        return f"is {run.state}"
    return str(run.state) if run.state in (RunState.FAILED, RunState.COMPLETED) else f"was {run.state}"


def shape_of(state: str) -> str:
    """The shape of a state, as a class of the style sheet."""
    return SHAPES.get(str(state), "left")


def drawn_state(state: str, words: object = "") -> Markup:
    """The shape of a state, with or without words, in the markup of the macro. This function is
    faster, and a grid has a thousand shapes.
    """
    before, after = _drawn(state, words == "")
    if words == "":
        return before
    return Markup(f"{before}{words if isinstance(words, Markup) else in_markup(str(words))}{after}")


@cache
def _drawn(state: str, is_alone: bool) -> tuple[Markup, Markup]:
    """The markup before and after the words."""
    macros: Any = environment().get_template("macros.html").module
    drawn = macros.state(state, "" if is_alone else "\0", quiet=is_alone)
    before, _, after = str(drawn).partition("\0")
    return Markup(before), Markup(after)


def as_sentence(text: str) -> str:
    """A remedy as it follows a fault: with a capital letter and a full stop, unless it is a
    command.
    """
    if not text or text.startswith("arkqueue "):
        return text
    # A remedy may repeat a long name, and all threads wait meanwhile. So only its last part is read.
    last = text[max(text.rfind("."), text.rfind(",")) + 1 :]
    end = "" if text[-1] in ".!?:`'\"" or re.search(r"arkqueue \S+ ", last) else "."
    return f"{text[0].upper()}{text[1:]}{end}"


def person(author: str) -> str:
    """The name of a person without the address: ``Ann <ann@example.org>`` is Ann."""
    name, less, _ = author.partition(" <")
    return one_line(name if less and name.strip() else author)


def ago(at: datetime | None, since: str = "") -> Markup:
    """The age of a moment, like ``3 min``; its title has the moment itself. ``since``: a word after
    the age, if one is needed: ``3 min ago``.
    """
    if at is None:
        return Markup("")
    at = at.astimezone(UTC)
    exact = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}" data-age="{}">{}</time>').format(
        at.isoformat(), exact, since, age_of(at, since)
    )


def clock(began: datetime | None, ended: datetime | None = None) -> Markup:
    """A duration like 2:10. If it has not ended, a browser lets it go on."""
    words = took(began, ended)
    if began is None or ended is not None:
        return Markup(words)
    return Markup(f'<span data-since="{began.isoformat()}">{words}</span>')


def bar(progress: float, usual: float) -> Markup:
    """The part of its usual time that a running task has taken, from 0 to 1, as a bar beside its clock.
    ``usual``: this time in seconds; a browser lets the bar go on.
    """
    return _BAR.format(round(usual, 1), round(60 * progress, 1))


def clocks(text: str) -> Markup:
    """The text of a task that runs, like ``runs for 2:10``; a browser lets its duration go on."""
    found = _CLOCK.search(text)
    if found is None:
        return escape(text)
    seconds = sum(int(part) * 60**place for place, part in enumerate(reversed(found[0].split(":"))))
    length = clock(datetime.now(UTC) - timedelta(seconds=seconds))
    return escape(text[: found.start()]) + length + escape(text[found.end() :])


def aged(text: str, at: datetime | None) -> Markup:
    """A text with the age of a moment, like ``last reported 5 min ago``; a browser lets it go on."""
    found = _AGE.search(text) if at is not None else None
    if found is None:
        return clocks(text)
    return escape(text[: found.start()]) + ago(at, "ago") + escape(text[found.end() :])


def until(at: datetime, late: str = "now") -> Markup:
    """A future moment, like ``in 3 h, 03:00 UTC``; its title has the moment itself. ``late``: the
    words for a moment that is over; after ``overdue``, the moment follows.
    """
    at, now = at.astimezone(UTC), datetime.now(UTC)
    day = "" if at - now < timedelta(days=1) else f"{at:%d %b} "
    exact = f"{day}{at:%H:%M} UTC"
    words = f"in {age(at - now, '').replace('now', 'a moment')}, {exact}"
    if at <= now:
        words = f"{late}, {exact}" if late == "overdue" else late
    return Markup('<time datetime="{}" title="{}" data-until="{}">{}</time>').format(
        at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC", late, words
    )
