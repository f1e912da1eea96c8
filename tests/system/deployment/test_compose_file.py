"""The promises of ``compose.yml``, as Compose reads the file. ``test_compose`` starts it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.system.deployment.conftest import ROOT

SOCKET = "/var/run/docker.sock"


@pytest.fixture(scope="module")
def file() -> dict[str, Any]:
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (ROOT / "compose.yml").read_text("utf-8"))
    read: dict[str, Any] = yaml.safe_load(text)
    return read


@pytest.fixture(scope="module")
def services(file: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = file["services"]
    return found


def mounts(service: dict[str, Any]) -> list[list[str]]:
    return [text.split(":") for text in service.get("volumes", [])]


def test_socket_is_only_the_workers(services: dict[str, Any]) -> None:
    having = {name for name, service in services.items() for mount in mounts(service) if SOCKET in mount[0]}

    assert having == {"worker"}
    assert not [name for name, service in services.items() if service.get("privileged") or service.get("pid")]


def test_folders_of_the_host_have_one_path_everywhere(services: dict[str, Any]) -> None:
    shared = [mount for service in services.values() for mount in mounts(service) if mount[0].startswith("/")]

    assert [mount for mount in shared if mount[0] != mount[1]] == []
    (home,) = re.findall(r"--homes (\S+)", services["worker"]["command"])
    assert [home, home] in mounts(services["worker"])


def test_everything_that_stays_has_a_health_check_and_starts_again(services: dict[str, Any]) -> None:
    staying = {name for name, service in services.items() if service.get("restart") == "unless-stopped"}

    assert staying == {"postgres", "web", "manager", "worker"}
    assert {name for name in staying if services[name].get("healthcheck")} == staying
    assert all(
        services[name]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
        for name in staying - {"postgres"}
    )


def test_what_has_to_last_is_in_volumes(file: dict[str, Any], services: dict[str, Any]) -> None:
    kept = {mount[0] for service in services.values() for mount in mounts(service) if not mount[0].startswith("/")}

    assert kept == set(file["volumes"])
    assert ["database", "/var/lib/postgresql/data"] in mounts(services["postgres"])


def test_nobody_reaches_the_database_but_arkqueue(file: dict[str, Any], services: dict[str, Any]) -> None:
    assert file["networks"]["database"] == {"internal": True}
    assert "ports" not in services["postgres"]
    assert services["web"]["ports"] == ["127.0.0.1:8417:8417"]


def test_workers_can_be_many(services: dict[str, Any]) -> None:
    assert not {"container_name", "ports", "hostname"} & set(services["worker"])
