"""The README of the example ``ingest`` maps each state, field, lock and admin action of Merritt's
queue (seeds 000, 001, 002) to arkqueue's words.
"""

from __future__ import annotations

import pytest
from ingest import host

README = (host.HERE / "README.md").read_text("utf-8")
STATES = [
    "Pending",
    "Held",
    "Processing",
    "Reporting",
    "Completed",
    "Failed",
    "UpdateReporting",
    "Deleted",
    "Estimating",
    "Provisioning",
    "Downloading",
    "Recording",
    "Notify",
]
FIELDS = [
    "batch_id",
    "profile_name",
    "submitter",
    "manifest_type",
    "payload_filename",
    "error_message",
    "response_type",
    "jobs_status",
    "type",
    "submission_mode",
    "failed_jobs",
    "status",
    "message",
    "payload_url",
    "payload_type",
    "payload_version",
    "last_successful_state",
    "status_updated",
    "job_id",
    "working_directory",
    "retry_count",
    "local_id",
    "ark",
    "priority",
    "update_status",
    "digest_type",
    "digest_value",
    "space_needed",
    "resource_to_provision",
    "primary_id",
    "manifest_url",
    "mode",
    "token",
    "delivery-node",
    "cloud-content-byte",
    "url",
    "anticipated-availability-time",
]
LOCKS = [
    "queue/ingest",
    "queue/accessSmall",
    "queue/accessLarge",
    "storage/{ark}",
    "inventory/{ark}",
    "collections/{mnemonic}",
]
ACTIONS = ["hold", "unhold", "release", "retry", "report", "delete", "prioritize", "pause", "resume"]


@pytest.mark.parametrize("word", [*STATES, *(f"`{name}`" for name in (*FIELDS, *LOCKS)), "`erc_…`"])
def test_the_tables_name_each_state_field_and_lock_of_the_seeds(word: str) -> None:
    assert word in README


@pytest.mark.parametrize("action", ACTIONS)
def test_the_tables_have_a_command_for_each_action_of_an_administrator(action: str) -> None:
    assert f"`arkqueue {action} " in README


@pytest.mark.parametrize("example", ["ingest", "deposit", "publish"])
def test_the_readme_of_an_application_is_of_one_screen(example: str) -> None:
    assert len((host.HERE.parent / example / "README.md").read_text("utf-8").splitlines()) <= 70
