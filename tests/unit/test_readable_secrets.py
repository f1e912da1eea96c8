"""A role that starts warns of secrets in its configuration that everybody on the host can read."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from arkqueue.cli.installation import load
from arkqueue.config import Configuration, readable_secrets

SECRETS = {
    "the password for https://example.org/": '[[credentials]]\nurl = "https://example.org/"\npassword = "s3cret"\n',
    "the database's password": 'database = "postgresql://me:s3cret@db/arkqueue"\n',
    "token": 'token = "s3cret"\n',
}


def a_file(folder: Path, text: str, mode: int) -> Path:
    file = folder / "arkqueue.toml"
    file.write_text(text)
    file.chmod(mode)
    return file


def warned(file: Path) -> list[str]:
    return readable_secrets(Configuration.load({}, file=file, home=file.parent), file)


@pytest.mark.parametrize("name", SECRETS)
def test_secret_that_everybody_may_read_is_warned_of(open_folder: Path, name: str) -> None:
    file = a_file(open_folder, SECRETS[name], 0o644)
    assert warned(file) == [f"{file}: everybody on this host may read {name}. Close the file: chmod o-r {file}"]
    file.chmod(0o640)
    assert warned(file) == []
    file.chmod(0o644)
    open_folder.chmod(0o700)
    assert warned(file) == [], "nobody else comes there"


def test_file_of_a_password_is_looked_at_and_a_file_without_secrets_is_not(open_folder: Path) -> None:
    password = open_folder / "password"
    password.write_text("s3cret")
    password.chmod(0o644)
    text = f'[[credentials]]\nurl = "https://example.org/"\npassword_file = "{password}"\n'
    file = a_file(open_folder, text, 0o644)
    (found,) = warned(file)
    assert found.startswith(f"{password}: everybody on this host may read the password for https://example.org/.")
    password.chmod(0o600)
    assert warned(file) == []
    assert warned(a_file(open_folder, 'database = "postgresql://me@db/arkqueue"\n', 0o644)) == []


def test_password_in_an_address_is_not_shown(open_folder: Path) -> None:
    inside = open_folder / "password"
    inside.write_text("s3cret")
    inside.chmod(0o644)
    entry = '[[credentials]]\nurl = "https://{}:hid%2Fden@example.org/"\n'
    text = entry.format("u") + 'password = "s3cret"\n' + entry.format("v") + f'password_file = "{inside}"\n'
    found = " ".join(warned(a_file(open_folder, text, 0o644)))
    assert "https://u@example.org/" in found
    assert "https://v@example.org/" in found
    assert "den" not in found


def test_role_that_starts_says_so(open_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = a_file(open_folder, SECRETS["token"], 0o644)
    with click.Context(click.Command("serve"), obj={"config": str(file), "home": str(open_folder)}) as context:
        load(context)
    assert capsys.readouterr().err.startswith(f"warning: {file}: everybody on this host may read token")
