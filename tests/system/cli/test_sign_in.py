"""``arkqueue sign-in``: a link for a browser."""

from __future__ import annotations

import httpx

from tests.system.cli.conftest import Cli, Server


def test_a_link_signs_a_browser_in_with_the_rights_of_the_token(arkqueue: Cli, server: Server) -> None:
    link = arkqueue("sign-in").out.strip()
    assert link.startswith(f"{server.url}/-/sign-in?code=")
    with httpx.Client(trust_env=False, verify=False, follow_redirects=True, timeout=60) as browser:
        assert "first token · admin" in browser.get(link).text
