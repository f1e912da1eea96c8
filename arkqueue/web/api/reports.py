"""Reports of runs over HTTP (design 5.32). Included by ``app`` before ``runs``, whose
``/runs/{id}/{verb}`` would take this path.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel, ConfigDict

from arkqueue.queue.reports import update_report
from arkqueue.queue.tokens import Scope
from arkqueue.views import reports
from arkqueue.views.reports import Report, ReportView
from arkqueue.web.access import admit
from arkqueue.web.api.calls import calls

router = calls("reports")

Number = Annotated[int, Path(ge=1, lt=2**31)]
"""The number of a report among those of its run."""


class NewReport(BaseModel):
    """A further report of a run. ``now``: make it even if tasks have not settled."""

    model_config = ConfigDict(extra="forbid")

    now: bool = False


@router.get("/runs/{id}/reports")
def list_reports(request: Request, id: int) -> list[ReportView]:
    """The reports of a run, the newest first."""
    caller = admit(request, Scope.READ)
    return reports.reports(caller.session, caller.run(id))


@router.get("/runs/{id}/reports/{number}")
def show_report(request: Request, id: int, number: Number) -> Report:
    """A report of a run: the outcomes of its tasks when it was made. Its JSON Schema is
    docs/report.schema.json.
    """
    caller = admit(request, Scope.READ)
    return reports.report(caller.session, caller.run(id), number)


@router.post("/runs/{id}/report", status_code=201)
def make_report(request: Request, response: Response, id: int, new: NewReport = NewReport()) -> ReportView:  # noqa: B008  frozen by use
    """Make a report of the present state of a run, with the changes since the last report. 409 while tasks of the run have not settled."""
    caller = admit(request, Scope.OPERATE)
    run = caller.run(id)
    made = update_report(caller.session, run, caller.by, now=new.now, approver=caller.approver)
    response.headers["Location"] = f"/api/v1/runs/{run}/reports/{made.number}"
    return next(view for view in reports.reports(caller.session, run) if view.number == made.number)
