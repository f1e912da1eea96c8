"""The configuration: where it comes from, who wins, and what is said when it is faulty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from arkqueue.config import Configuration, Credentials, Docker
from arkqueue.errors import ConfigurationError
from arkqueue.model import Pull


def load(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **overrides: Any) -> Configuration:
    (tmp_path / "arkqueue.toml").write_text(text)
    return Configuration.load({"ARKQUEUE_HOME": str(tmp_path), **(environ or {})}, **overrides)


def faults(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text, environ)
    return str(caught.value)


def test_without_anything_the_defaults_hold() -> None:
    found = Configuration.load({"HOME": "/home/someone"})
    assert found.home == Path("/home/someone/.local/share/arkqueue")
    assert found.database is None
    assert (found.host, found.port, found.server) == ("127.0.0.1", 8417, None)
    assert (found.lease, found.renew, found.sweep, found.poll, found.adopt_within) == (90, 10, 60, 1, 300)
    assert (found.log_head, found.log_tail) == (1048576, 15728640)
    assert found.slots >= 1
    assert (found.workspace_pool, found.mounts) == (20 << 30, ())
    assert found.min_free == 1 << 30
    assert found.docker == Docker()
    assert (found.docker.host, found.docker.pull, found.docker.pids) == ("unix:///var/run/docker.sock", "missing", 4096)
    assert (found.docker.cpu, found.docker.memory, found.docker.most_cpu) == (None, None, None)


def test_the_data_folder_of_the_desktop_standard_is_used() -> None:
    assert Configuration.load({"HOME": "/x", "XDG_DATA_HOME": "/data"}).home == Path("/data/arkqueue")
    assert Configuration.load({"HOME": "/x", "XDG_DATA_HOME": "data"}).home == Path("/x/.local/share/arkqueue")


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    text = 'slots = 1\nlisten = "0.0.0.0:1"\nsweep = "2m"\n'
    found = load(tmp_path, text, {"ARKQUEUE_SLOTS": "2", "ARKQUEUE_LISTEN": "[::1]:2"}, slots=3, listen=None)
    assert (found.slots, found.host, found.port, found.sweep) == (3, "::1", 2, 120)


def test_another_file_can_be_named(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("slots = 7")
    assert load(tmp_path, "slots = 1", {"ARKQUEUE_CONFIG": str(other)}).slots == 7
    assert Configuration.load({"HOME": "/x"}, file=other).slots == 7
    other.unlink()
    with pytest.raises(ConfigurationError, match="does not exist"):
        Configuration.load({"HOME": "/x"}, file=other)


def test_all_faults_are_told_at_once_with_place_and_nearest_name(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        'leese = "90s"\nsweep = 60\nlog_head = "1 MB"\nslots = 0\nlabels = ["gpu", "two words"]\n'
        '[[credentials]]\nurl = "https://a"\npasword = "x"\n',
        {"ARKQUEUE_LISTEN": "here", "ARKQUEUE_DATABSE": "x"},
    )
    file = str(tmp_path / "arkqueue.toml")
    for fault in (
        f"{file}: leese is unknown (did you mean lease?)",
        f"{file}: sweep is not a valid duration; write it like 90s, 30m or 2h",
        f"{file}: log_head is not a valid size; write it like 64KiB, 15MiB or 1GiB",
        f"{file}: slots must be 1 or more",
        f"{file}: labels holds 'two words', which is not a valid label; use letters, digits, '.', '_' and '-', at most 40, beginning with a letter or a digit",
        f"{file}: credentials[1].pasword is unknown (did you mean password?)",
        "environment: ARKQUEUE_LISTEN is not a valid address; write it like 127.0.0.1:8417 or [::1]:8417",
        "environment: ARKQUEUE_DATABSE is unknown (did you mean ARKQUEUE_DATABASE?)",
    ):
        assert fault in told


def test_the_engine_is_where_arkqueue_is_told_else_where_docker_is(tmp_path: Path) -> None:
    elsewhere = {"DOCKER_HOST": "tcp://10.0.0.1:2375"}
    assert load(tmp_path, environ=elsewhere).docker.host == "tcp://10.0.0.1:2375"
    assert load(tmp_path, environ={"DOCKER_HOST": "10.0.0.1:2375"}).docker.host == "tcp://10.0.0.1:2375"
    assert load(tmp_path, environ={"DOCKER_HOST": ""}).docker.host == "unix:///var/run/docker.sock"
    text = '[docker]\nhost = "unix:///srv/engine.sock"\npull = "never"\n'
    assert load(tmp_path, text, elsewhere).docker == Docker(host="unix:///srv/engine.sock", pull=Pull.NEVER)


def test_keys_of_a_table_come_each_from_its_own_place(tmp_path: Path) -> None:
    text = '[docker]\npull = "never"\nmemory = "1GiB"\ncpu = 2\n'
    found = load(tmp_path, text, {"ARKQUEUE_DOCKER_PULL": "always", "ARKQUEUE_DOCKER_MOST_CPU": "2.5"}).docker
    assert (found.pull, found.memory, found.cpu, found.most_cpu) == ("always", 1 << 30, 2, 2.5)
    told = faults(tmp_path, '[docker]\npull = "often"\n', {"ARKQUEUE_DOCKER_MEMORY": "1G", "ARKQUEUE_DOCKER_PIDZ": "1"})
    assert f"{tmp_path / 'arkqueue.toml'}: docker.pull must be 'missing', 'always' or 'never'" in told
    assert "environment: ARKQUEUE_DOCKER_MEMORY is not a valid size; write it like" in told
    assert "environment: ARKQUEUE_DOCKER_PIDZ is unknown (did you mean ARKQUEUE_DOCKER_PIDS?)" in told


MOUNT = '[[mounts]]\nname = "index"\narchives = ["*"]\n'


def test_an_import_may_have_any_size_where_nobody_wants_a_limit(tmp_path: Path) -> None:
    assert load(tmp_path).import_limit == 1000
    assert load(tmp_path, 'import_limit = "none"').import_limit is None
    assert load(tmp_path, environ={"ARKQUEUE_IMPORT_LIMIT": "none"}).import_limit is None
    assert load(tmp_path, environ={"ARKQUEUE_IMPORT_LIMIT": "7"}).import_limit == 7


@pytest.mark.parametrize("written", ["0", '"0"', '"0B"'])
def test_a_mark_of_nothing_is_as_good_as_none(tmp_path: Path, written: str) -> None:
    assert load(tmp_path, f"min_free = {written}").min_free == 0
    assert load(tmp_path, environ={"ARKQUEUE_MIN_FREE": "0"}).min_free == 0
    assert load(tmp_path, 'min_free = "3MiB"').min_free == 3 << 20


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[docker]\nhots = "x"', "docker.hots is unknown (did you mean host?)"),
        ('[docker]\nhost = "engine"', "docker.host is not a valid address of an engine; write it like unix:///var/run/docker.sock"),
        ("[docker]\ncpu = 0", "docker.cpu must be 0.01 or more"),
        ('[docker]\nmemory = "1MiB"', "docker.memory is too little for any container; give at least 6MiB"),
        ('[docker]\nmemory = "2GiB"\nmost_memory = "1GiB"', "docker memory must not be more than most_memory"),
        ("[docker]\npids = 0", "docker.pids must be 1 or more"),
        ("docker = 3", "docker must be a table"),
        ('[docker]\npull = "often"', "docker.pull must be 'missing', 'always' or 'never'"),
        ("[docker]\ncpu = true", "docker.cpu must be a number"),
        ('workspace_pool = "20GB"', "workspace_pool is not a valid size"),
        ("workspace_pool = 0", "workspace_pool is not a valid size"),
        ("import_limit = 0", "import_limit must be 1 or more"),
        ("import_limit = true", "import_limit must be a number"),
        ("items_limit = 0", "items_limit must be 1 or more"),
        ('items_limit = "none"', "items_limit"),
        ("min_free = 1", "min_free is not a valid size"),
        ("min_free = false", "min_free is not a valid size"),
        (MOUNT, "mounts[1] give folder or volume, one of them"),
        (MOUNT + 'folder = "/srv/a"\nvolume = "a"', "mounts[1] give folder or volume, one of them"),
        (MOUNT + 'foldr = "/srv/a"', "mounts[1].foldr is unknown (did you mean folder?)"),
        (MOUNT + 'folder = "srv"', "mounts[1].folder is not an absolute path"),
        (MOUNT + 'folder = "/srv/../x"', "mounts[1].folder is not an absolute path"),
        (MOUNT + 'folder = "/"', "mounts[1].folder is the whole host"),
        (MOUNT + 'folder = "/srv/.."', "mounts[1].folder is not an absolute path"),
        (MOUNT + 'volume = "/srv"', "mounts[1].volume is not a valid name"),
        (MOUNT.replace("index", "a b") + 'volume = "a"', "mounts[1].name is not a valid name"),
        (MOUNT.replace('"*"', "") + 'volume = "a"', "mounts[1].archives is empty; give at least one"),
        (MOUNT.replace('["*"]', '"*"') + 'volume = "a"', "mounts[1].archives must be a list, in brackets"),
        ('[[mounts]]\nname = "index"\nvolume = "a"', "mounts[1].archives is missing"),
        (MOUNT + 'folder = "/var/run/docker.sock"', "mounts[1].folder gives away the engine's socket"),
        (MOUNT + 'folder = "/run"', "mounts[1].folder gives away the engine's socket"),
        (MOUNT + 'folder = "/srv/a"\n[docker]\nhost = "unix:///srv/a/b"', "mounts[1].folder gives away the engine's socket"),
        ('scratch_folder = "/srv/s"\n' + MOUNT + 'folder = "/srv/s/x"', "mounts[1].folder gives away the scratch folders"),
        ('scratch_folder = "/srv/s"\n' + MOUNT + 'folder = "/srv"', "mounts[1].folder gives away the scratch folders"),
        (MOUNT + 'folder = "HOME"', "mounts[1].folder gives away the home folder"),
        (MOUNT + 'folder = "HOME/postgres"', "mounts[1].folder gives away the home folder"),
        (MOUNT + 'volume = "a"\n' + MOUNT + 'volume = "b"', "mounts[2].archives gives 'index' to '*' a second time"),
    ],
)  # fmt: skip
def test_each_fault_about_containers_is_told(tmp_path: Path, text: str, fault: str) -> None:
    assert fault in faults(tmp_path, text.replace("HOME", str(tmp_path)))


def test_folder_that_holds_the_home_folder_is_found_through_a_link(tmp_path: Path) -> None:
    home = tmp_path / "a" / "home"
    home.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    for folder in (tmp_path / "a", tmp_path / "link", tmp_path / "link" / "home"):
        assert "gives away the home folder" in faults(home, f'{MOUNT}folder = "{folder}"')


def test_mounts_are_granted_by_name(tmp_path: Path) -> None:
    index, cache = load(
        tmp_path, MOUNT + 'folder = "/srv/a"\n' + MOUNT.replace("index", "cache") + 'volume = "c"\nread_only = true'
    ).mounts
    assert (index.name, index.source, index.archives, index.read_only) == ("index", Path("/srv/a"), ("*",), False)
    assert (cache.name, cache.source, cache.read_only) == ("cache", "c", True)


def test_the_variables_of_a_task_are_no_configuration(tmp_path: Path) -> None:
    names = ["ARCHIVE", "BRANCH", "REVISION", "NUMBER", "PREVIOUS", "BASE", "TASK", "RUN", "ATTEMPT", "TRIGGER"]
    names += ["AUTHOR", "MESSAGE", "CHANGES", "ITEM", "INPUTS", "OUTPUT", "SCRATCH"]
    load(tmp_path, environ={"ARKQUEUE": "1", **{f"ARKQUEUE_{name}": "x" for name in names}})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('lease = "10m"\nrenew = "30s"', "renew must be at most 10 s"),
        ('lease = "20s"', "renew must be at most a third of lease"),
        ('poll = "20s"', "poll must not be longer than renew"),
        ('database_direct = "x"', "database_direct is for database_pooler"),
        ("scratch_shared = true", "scratch_shared is for a scratch_folder that several hosts see; give that folder"),
        ('scratch_folder = "scratch"', "scratch_folder is not an absolute path of a folder"),
        ('scratch_folder = "/"', "scratch_folder is not an absolute path of a folder"),
        ("scratch_limit = 1", "scratch_limit is not a valid size"),
        ('listen = "127.0.0.1:99999"', "listen is not a valid address"),
        ('sweep = "0s"', "sweep must be more than 0"),
        ('sweep = "9999999999d"', "sweep is more than a year; give at most 366d"),
        ('sweep = "1 fortnight"', "sweep is not a valid duration"),
        ("slots = ", "is not TOML"),
        ("slots = true", "slots must be a number"),
        ('slots = "many"', "slots must be a whole number"),
        ("slots = 0", "slots must be 1 or more"),
        ("slots = 1000000", "slots must be 10000 or less"),
        ('hosts = ["https://queue.example.org"]', "hosts holds 'https://queue.example.org', which is not a valid name"),
        ('hosts = ["queue.example.org:8417"]', "write it without scheme and port: queue.example.org"),
        ('hosts = ["[2001:db8::1]:8417"]', "write it without scheme and port: queue.example.org"),
        ('hosts = ["[2001:db8::1"]', "write it without scheme and port: queue.example.org"),
        ("listen = 8417", "listen must be a text; put it in quotes"),
        ('database = ""', "database is empty; leave it out for the embedded PostgreSQL"),
        ('database_pooler = "perhaps"', "database_pooler must be true or false"),
        ('[credentials]\nurl = "u"', "credentials must be a list of tables; write [[credentials]]"),
        ('[[credentials]]\nurl = "u"\npassword = "hidden"\npassword_file = "f"', "give password or password_file"),
    ],
)
def test_each_fault_is_told(tmp_path: Path, text: str, fault: str) -> None:
    told = faults(tmp_path, text)
    assert fault in told
    assert "hidden" not in told


def test_names_of_hosts_and_mail_addresses_count_in_small_letters(tmp_path: Path) -> None:
    mail = '[mail]\nserver = "localhost:25"\ntls = "none"\nsender = "q@example.org"\nrecipients = ["*@Example.ORG"]'
    hosts = '"Queue.Example.org", "2001:DB8::1", "[2001:DB8::2]"'
    read = load(tmp_path, f"hosts = [{hosts}]\n{mail}")
    assert read.hosts == ("queue.example.org", "2001:db8::1", "2001:db8::2"), "browsers send addresses in brackets"
    assert read.mail is not None
    assert read.mail.recipients == ("*@example.org",)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "arkqueue.toml").write_bytes(b"slots = 1 # \xff")
    with pytest.raises(ConfigurationError, match=r"is not UTF-8 \(byte 12\)"):
        Configuration.load({"ARKQUEUE_HOME": str(tmp_path)})


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("0.5h", 1800), ("500ms", 0.5)])
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    assert load(tmp_path, f'adopt_within = "{text}"').adopt_within == seconds


def test_credentials_are_those_of_the_longest_prefix(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("from file\n")
    found = load(
        tmp_path,
        f'[[credentials]]\nurl = "https://svn.example.org"\nusername = "a"\npassword = "p"\n'
        f'[[credentials]]\nurl = "https://svn.example.org/private/"\nusername = "b"\n'
        f'password_file = "{tmp_path / "secret"}"\n',
    )

    def who(url: str) -> tuple[str, str | None] | None:
        entry: Credentials | None = found.credentials_for(url)
        return entry and (entry.username, entry.secret())

    assert who("https://svn.example.org/repo") == ("a", "p")
    assert who("https://svn.example.org/private") == ("b", "from file")
    assert who("https://svn.example.org/private/x") == ("b", "from file")
    assert who("https://svn.example.org/privates") == ("a", "p")
    assert who("https://svn.example.org.evil.example/") is None
    (tmp_path / "secret").unlink()
    with pytest.raises(ConfigurationError, match=r"the password for https://svn\.example\.org/private/ cannot be read"):
        who("https://svn.example.org/private")


def test_it_is_frozen_and_keeps_its_secrets(tmp_path: Path) -> None:
    found = load(tmp_path, 'database = "postgresql://u:hidden@h/d"\ntoken = "hidden"')
    assert "hidden" not in repr(found)
    with pytest.raises(ValidationError):
        found.slots = 2  # type: ignore[misc]
