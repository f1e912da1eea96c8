"""A committer whose containers write into a mount, and whose processes run as another user, tries
to become root by a setuid file.
"""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import psycopg
import pytest

from arkqueue.archive_settings import ArchiveSettings
from arkqueue.config import PersistentMount
from arkqueue.db.embedded.server import Embedded
from arkqueue.executor.exposure import exposure
from tests.postgres import a_database
from tests.requirements import a_mount, missing
from tests.security.conftest import Site, a_site
from tests.system.end_to_end.installation import Archive, tasks
from tests.waiting import eventually

LEAVE = "cp /bin/busybox /cache/id; chmod 4755 /cache/id; chmod 777 /cache"
"""What a container's root does to a mount."""


@contextmanager
def a_store() -> Iterator[Path]:
    """A folder that an administrator made for mounts, and one in it. Setuid files work there, which they need not in the tests' own folder."""
    folder = Path(tempfile.mkdtemp(prefix="arkqueue-mounts-", dir="/var/tmp")).resolve()
    try:
        if os.statvfs(folder).f_flag & os.ST_NOSUID:
            missing(f"a file system for {folder} on which setuid files work")
        folder.chmod(0o755)
        (folder / "store" / "cache").mkdir(parents=True)
        yield folder / "store"
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def store() -> Iterator[Path]:
    with a_store() as folder:
        yield folder


@pytest.fixture(scope="module")
def mounts() -> Iterator[Path]:
    """The folder above that of the mount ``cache``, which the server's configuration grants to archives called ``cached-…``."""
    with a_store() as folder:
        yield folder


@contextmanager
def mounted(*arguments: str | Path) -> Iterator[None]:
    """Like `a_mount`, for what only the kernel can tell from the folder below it."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        missing(f"the right to mount ({done.stderr.strip()})")
    try:
        yield
    finally:
        subprocess.run(["umount", arguments[-1]], check=True)


@pytest.fixture(scope="module")
def site(
    request: pytest.FixtureRequest,
    postgres: Embedded,
    template: str,
    engine: docker.APIClient,
    engine_url: str,
    mounts: Path,
) -> Iterator[Site]:
    request.getfixturevalue("root")
    cache = {"name": "cache", "folder": str(mounts / "cache"), "archives": ["cached-*"]}
    with a_database(postgres, template) as uri:
        for site in a_site(uri, docker={"host": engine_url}, mounts=[cache]):
            yield site
            site.installation.close()
            with psycopg.connect(uri, row_factory=psycopg.rows.scalar_row) as connection:
                installation = connection.execute("select id::text from installation").fetchone()
            label = {"label": f"arkqueue.installation={installation}"}
            for container in engine.containers(all=True, filters=label):
                engine.remove_container(container["Id"], force=True, v=True)


def an_archive(site: Site, *options: str) -> Archive:
    return site.archive("git", "--executor", "process", *options, name=f"cached-{uuid.uuid4().hex[:8]}")


def the_attack(path: Path, image: str) -> dict[str, dict[str, object]]:
    cache = [{"name": "cache", "path": "/cache"}]
    leave = {"command": LEAVE, "image": image, "network": "none", "mounts": cache, "checkout": "none"}
    return {"leave": leave, "run": {"command": [str(path), "-u"], "depends": ["leave"], "checkout": "none"}}


def test_i_leave_a_setuid_file_in_a_mount_and_run_it_by_its_path(
    site: Site, mounts: Path, mallory: pwd.struct_passwd, busybox: str
) -> None:
    mounts.chmod(0o755)
    hers = an_archive(site)
    set_user = ("archive", "set", hers.name, "--process-user", mallory.pw_name)
    refused = site.installation(*set_user, code=1).err
    assert (
        f"mount cache of archive {hers.name}: a container may leave a setuid file or a device in {mounts / 'cache'}"
        in refused
    )
    assert f"{mallory.pw_name} may reach {mounts / 'cache'}" in refused
    assert site.installation("archive", "show", hers.name, "--json").json["settings"]["process_user"] is None
    command = re.search(r"Close the folder above it: (chmod [^;]+);", refused)
    assert command
    subprocess.run(shlex.split(command[1]), check=True)
    site.installation(*set_user)
    hers.commit(tasks(the_attack(mounts / "cache" / "id", busybox)))
    hers.wait("leave@2")
    hers.wait("run@2", "failed")
    assert (mounts / "cache" / "id").stat().st_mode & 0o4000, "the container did its part"
    assert "not started" in hers.log("run@2")
    assert "\n0\n" not in "\n" + hers.log("run@2")
    site.answers()


def test_i_had_both_before_arkqueue_looked(site: Site, mounts: Path, mallory: pwd.struct_passwd, busybox: str) -> None:
    mounts.chmod(0o700)
    hers = an_archive(site, "--process-user", mallory.pw_name)
    mounts.chmod(0o755)
    hers.commit(tasks(the_attack(mounts / "cache" / "id", busybox)))
    hers.wait("leave@2")
    attempt = eventually(lambda: [a for a in hers.attempts("run@2") if a["ended_at"]])[0]
    assert (attempt["end"], attempt["started_at"]) == ("withheld", None)
    assert "Close the folder above it: chmod go-x " in attempt["message"]
    hers.wait("run@2", "deferred")
    explained = hers.explained("run@2")
    assert "its host does not start it" in explained
    assert "a container may leave a setuid file or a device in" in explained
    # Whoever starts the server is told, too.
    site.installation.roles[0].stop()
    started = site.installation.start()
    told = eventually(
        lambda: [line for line in started.said.splitlines() if hers.name in line and "process tasks wait" in line]
    )
    assert "Its process tasks wait. Close the folder above it: chmod go-x " in told[-1]
    site.answers()

    mounts.chmod(0o700)
    site.installation("retry", hers.task("run@2"))
    hers.wait("run@2", "failed")
    assert "\n0\n" not in "\n" + hers.log("run@2")


def test_other_settings_of_such_an_archive_may_still_be_set(
    site: Site, mounts: Path, mallory: pwd.struct_passwd
) -> None:
    mounts.chmod(0o700)
    hers = an_archive(site, "--process-user", mallory.pw_name)
    mounts.chmod(0o755)
    site.installation("archive", "set", hers.name, "--author", "Bot <bot@example.org>")
    site.installation("archive", "set", hers.name, "--executor", "none")


# What is looked at


def exposed(folder: Path, user: str, *, read_only: bool = False, **settings: object) -> Path | None:
    """The path by which a user reaches a mount's folder, or None."""
    given = ArchiveSettings(**({"process": True, "process_user": user} | settings))  # type: ignore[arg-type]
    mount = PersistentMount(name="cache", folder=folder, archives=("papers",), read_only=read_only)
    found = exposure("papers", given, [mount])
    return found and found.path


def test_only_what_an_archive_has_both_of_counts(store: Path, mallory: pwd.struct_passwd) -> None:
    cache, name = store / "cache", mallory.pw_name
    assert exposed(cache, name) == cache
    assert exposed(cache, name, read_only=True) is None
    assert exposed(cache, name, process=False) is None
    assert exposed(cache, name, image="busybox") is None, "nothing of it runs as a process"
    assert exposed(cache, "root") is None
    assert exposed(cache, "nobody-of-this-name") is None
    assert exposed(cache, name, process_user=None) is None
    given = ArchiveSettings(process=True, process_user=name)
    mount = PersistentMount(name="cache", folder=cache, archives=("other",))
    assert exposure("papers", given, [mount]) is None
    first = PersistentMount(name="cache", folder=cache, archives=("*",), read_only=True)
    second = PersistentMount(name="cache", folder=cache, archives=("papers",))
    assert exposure("papers", given, [first, second]) is None, "tasks get the first of the name"
    assert exposure("papers", given, [second, first])


def test_i_change_the_mode_of_the_mounts_folder_from_the_container(store: Path, mallory: pwd.struct_passwd) -> None:
    """So closing that folder itself is no defence; nor is one above it that another mount gives to containers."""
    cache = store / "cache"
    cache.chmod(0o700)
    assert exposed(cache, mallory.pw_name) == cache
    store.chmod(0o700)
    assert exposed(cache, mallory.pw_name) is None
    mounts = [PersistentMount(name=one.name, folder=one, archives=("papers",)) for one in (cache, store)]
    found = exposure("papers", ArchiveSettings(process=True, process_user=mallory.pw_name), mounts)
    assert found
    assert (found.mount, found.path) == ("cache", cache)


def test_i_am_let_through_by_my_group_as_the_owner_or_by_an_access_list(
    store: Path, mallory: pwd.struct_passwd
) -> None:
    cache, name = store / "cache", mallory.pw_name
    store.chmod(0o710)
    assert exposed(cache, name) is None
    os.chown(store, 0, mallory.pw_gid)
    assert exposed(cache, name) == cache
    store.chmod(0o701)
    assert exposed(cache, name) is None, "the group is refused what others are given"
    os.chown(store, mallory.pw_uid, 0)
    store.chmod(0o000)
    assert exposed(cache, name) == cache, "its owner may open it"
    os.chown(store, 0, 0)
    assert exposed(cache, name) is None

    # Two entries of an access list: the owner's, and
    # one that names a user (linux/posix_acl_xattr.h).
    def entry(tag: int, mode: int, who: int = 0xFFFFFFFF) -> bytes:
        return tag.to_bytes(2, "little") + mode.to_bytes(2, "little") + who.to_bytes(4, "little")

    access = b"\x02\0\0\0" + entry(1, 7) + entry(2, 1, mallory.pw_uid) + entry(4, 0) + entry(16, 1) + entry(32, 0)
    try:
        os.setxattr(store, "system.posix_acl_access", access)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    assert exposed(cache, name) == cache


def test_i_come_by_a_symlink_of_the_administrators(store: Path, mallory: pwd.struct_passwd) -> None:
    way = store.parent / "way"
    way.symlink_to(store / "cache")
    assert exposed(way, mallory.pw_name) == store / "cache"
    store.chmod(0o700)
    assert exposed(way, mallory.pw_name) is None


def test_i_come_by_another_mount_of_the_same_files(store: Path, mallory: pwd.struct_passwd) -> None:
    store.chmod(0o700)
    cache, other = store / "inner" / "cache", store.parent / "else where"
    (cache / "deep").mkdir(parents=True)
    other.mkdir()
    for source, path in ((store / "inner", other / "cache"), (cache, other), (cache / "deep", other)):
        assert exposed(cache, mallory.pw_name) is None
        with mounted("--bind", source, other):
            assert exposed(cache, mallory.pw_name) == path
            subprocess.run(["mount", "-o", "remount,bind,nosuid", other], check=True)
            assert exposed(cache, mallory.pw_name) == path, "the node of a device works there"
            subprocess.run(["mount", "-o", "remount,bind,nosuid,nodev", other], check=True)
            assert exposed(cache, mallory.pw_name) is None


def test_i_find_the_setuid_file_on_a_file_system_without_setuid(store: Path, mallory: pwd.struct_passwd) -> None:
    """The command that the refusal gives where no folder above can be closed."""
    cache, name = store / "cache", mallory.pw_name
    given = ArchiveSettings(process=True, process_user=name)
    found = exposure("papers", given, [PersistentMount(name="cache", folder=cache, archives=("papers",))])
    assert found
    command = re.search(r"mount -o bind,nosuid,nodev \S+ \S+", found.remedy)
    assert command
    subprocess.run(shlex.split(command[0]), check=True)
    try:
        assert exposed(cache, name) is None
        shutil.copy("/usr/bin/id", cache / "id")
        (cache / "id").chmod(0o4755)
        done = subprocess.run(
            [cache / "id", "-u"],
            user=name,
            group=mallory.pw_gid,
            extra_groups=(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == f"{mallory.pw_uid}\n"
        os.mknod(cache / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (cache / "null").chmod(0o666)
        with pytest.raises(PermissionError):
            (cache / "null").read_bytes()
        # What is mounted in the folder goes into the container with it.
        (cache / "in").mkdir()
        with a_mount("-t", "tmpfs", "none", cache / "in"):
            assert exposed(cache, name) == cache / "in"
    finally:
        subprocess.run(["umount", cache], check=True)
