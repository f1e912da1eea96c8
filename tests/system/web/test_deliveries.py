"""Receivers are set, deliveries listed and resent, over HTTP and on the command line
(design 15).
"""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from arkqueue.config import Configuration
from arkqueue.db.session import Session
from arkqueue.queue import notifications
from arkqueue.queue.tokens import Scope
from tests.builders import AnArchive, an_archive
from tests.db.outbox import CI, choose, failed_runs, set_receivers
from tests.system.web.conftest import Client, problem


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    webhooks = [{"url": "https://hooks.example.org", "key_file": str(tmp_path / "key")}]
    mail = {"server": "smtp.example.org:587", "sender": "queue@example.org", "recipients": ["*@example.org"]}
    return Configuration.load({}, home=tmp_path / "home", webhooks=webhooks, mail=mail)


@pytest.fixture
def failed(session: Session) -> AnArchive:
    """papers, with a delivery that was tried in vain, and one that was sent."""
    archive = an_archive(session)
    set_receivers(archive, ci=["failed"])
    failed_runs(archive, 2, 3)
    (first,) = choose(archive)
    notifications.record_failure(session, first, "answered 503", is_silent=False)
    (second,) = choose(archive)
    notifications.record_sent(session, second)
    archive.sql("update delivery set state = 'failed', ended_at = clock_timestamp() where id = %s", first.id)
    return archive


def test_receivers_are_set_and_usually_told_of_all_but_completed(
    session: Session, admin: httpx.Client, reader: httpx.Client
) -> None:
    an_archive(session)
    wanted = {CI: [], f"{CI}/more?x=1": ["completed"], "Ann@example.org": ["held"], "author": ["failed"]}
    answer = admin.patch("/archives/papers", json={"notify": wanted})
    assert answer.status_code == 200, answer.text
    assert answer.json()["settings"]["notify"] == {
        CI: ["failed", "fixed", "held", "stopped"],
        f"{CI}/more?x=1": ["completed"],
        "Ann@example.org": ["held"],
        "author": ["failed"],
    }
    assert admin.patch("/archives/papers", json={"notify": None}).json()["settings"]["notify"] == {}
    assert reader.patch("/archives/papers", json={"notify": {}}).status_code == 403


def test_a_receiver_that_the_configuration_does_not_allow_is_refused(session: Session, admin: httpx.Client) -> None:
    an_archive(session)
    for receiver, said in {
        "https://hooks.example.org.evil.net/ci": "no [[webhooks]] of arkqueue.toml allows (allowed: https://hooks.example.org)",
        "https://hooks.example.org@evil.net/ci": "is not a plain URL",
        "https://hooks.example.org:444/ci": "no [[webhooks]]",
        "http://hooks.example.org/ci": "no [[webhooks]]",
        "https://me:secret@hooks.example.org/ci": "is not a plain URL",
        "https://hooks.example.org\\@evil.net/ci": "is not a plain URL",
        "https://hooks.example.org/a b\r\nX: y": "is not a plain URL",
        "ftp://hooks.example.org/ci": "is neither the URL of a webhook nor a mail address",
        "Ann <ann@example.org>": "nor a mail address",
        "ann@example.org,evil@example.net": "nor a mail address",
        "ann@example.net": "recipients of arkqueue.toml allows (*@example.org)",
        "ann@example.org.evil.net": "recipients of arkqueue.toml allows",
        "": "a receiver is a text",
    }.items():
        answer = admin.patch("/archives/papers", json={"notify": {receiver: ["failed"]}})
        assert "secret" not in str(problem(answer, 422, said)["detail"])
    answer = admin.patch("/archives/papers", json={"notify": {CI: ["failed", "broken"]}})
    problem(answer, 422, "'broken'", "There are: failed, fixed, held, completed, stopped, and branch=GLOB.")
    assert admin.get("/archives/papers").json()["settings"]["notify"] == {}


def test_deliveries_are_listed_by_state_and_a_page_at_a_time(failed: AnArchive, reader: httpx.Client) -> None:
    page = reader.get("/deliveries", params={"limit": 1}).json()
    (sent,) = page["deliveries"]
    assert (sent["name"], sent["occasion"], sent["receiver"], sent["state"]) == ("papers@3", "failed", CI, "sent")
    older = reader.get("/deliveries", params={"before": page["next"]}).json()
    assert [one["fault"] for one in older["deliveries"]] == ["answered 503"]
    assert older["next"] is None
    found = reader.get("/deliveries", params={"archive": failed.name, "state": ["failed", "waiting"]}).json()
    assert [(one["name"], one["tries"]) for one in found["deliveries"]] == [("papers@2", 1)]


def test_a_failed_delivery_is_resent_by_an_operator_of_its_archive_alone(
    failed: AnArchive, client: Client, operator: httpx.Client
) -> None:
    an_archive(failed.session, "letters")
    (row,) = failed.sql("select id from delivery where state = 'failed'")
    path = f"/deliveries/{row['id']}/resend"
    assert client(Scope.READ).post(path).status_code == 403
    problem(client(Scope.OPERATE, "letters").post(path), 404, "does not exist")
    problem(operator.post(f"/deliveries/{2**70}/resend"), 404, "does not exist")
    assert operator.post(path).status_code == 202
    assert [one.id for one in choose(failed)] == [row["id"]]
    problem(operator.post(path), 409, "is being sent")


def test_health_says_that_notifications_were_given_up(failed: AnArchive, client: Client) -> None:
    said = client().get("/healthz").json()["faults"]
    assert any("1 notification was not sent within a day" in fault for fault in said), said
    failed.sql("update delivery set ended_at = ended_at - interval '8 days'")
    assert not any("notification" in fault for fault in client().get("/healthz").json()["faults"])
