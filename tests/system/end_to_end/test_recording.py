"""The recording that README shows can be made again: what a terminal shows becomes an animation."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.recording import record


@pytest.mark.full
def test_what_a_terminal_shows_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "recorded.svg"
    record(file, r"printf '\033[1mfirst\033[0m\n'; mktemp -d >/dev/null; sleep 0.3; echo last")
    words = [element.text for element in ElementTree.parse(file).iter() if element.text]
    assert any("first" in text for text in words)
    assert any("last" in text for text in words)
