"""Runs the git program: without the user's and the system's configuration, without hooks, filters
or prompts, and never in a tree that a task could write.
"""

from __future__ import annotations

import atexit
import os
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from arkqueue.errors import ArchiveUnreachable
from arkqueue.runtime.output import LongOutput, read_outputs

# env(1) sets the environment, so this module does not read its process's own. It also removes
# variables that a calling hook had set.
_GIT = (
    *("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "-u", "GIT_OBJECT_DIRECTORY"),
    *("-u", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "-u", "GIT_QUARANTINE_PATH", "-u", "GIT_CONFIG_PARAMETERS"),
    *("-u", "GIT_CONFIG_COUNT", "-u", "GIT_NAMESPACE", "-u", "GIT_ASKPASS", "-u", "SSH_ASKPASS", "LC_ALL=C"),
    # libgit2 reads no other kinds of repositories, which git may prefer for new ones.
    *("GIT_DEFAULT_HASH=sha1", "GIT_DEFAULT_REF_FORMAT=files"),
    *("GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_CONFIG_NOSYSTEM=1"),
    f"GIT_CONFIG_GLOBAL={Path(__file__).with_name('gitconfig')}",
    *("git", "-c", "core.hooksPath=/dev/null", "-c", "core.sshCommand=ssh -o BatchMode=yes -o ConnectTimeout=30"),
    *("-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false"),
    # A fetch makes one pack, which appears as a whole: others may read the mirror meanwhile. Now
    # and then the many small packs are packed together, and the large ones left alone.
    *("-c", "fetch.unpackLimit=1", "-c", "gc.bigPackThreshold=64m", "-c", "pack.windowMemory=256m"),
)

ANCESTRY_TIMEOUT = 600.0
"""Seconds for a walk through a history of any length."""
MEMORY = 2**32
"""Bytes that git may allocate: enough for a file of up to 512 MiB and its derived data, for each of
its threads.
"""
LONGEST_MESSAGE = 1 << 16
"""The most bytes of git's error output that are kept: its end. A remote can send any number of
messages, which git passes on.
"""
LONGEST_ANSWER = 1 << 22
"""The most bytes of git's output that a caller reads, unless it names another limit."""
MESSAGE_TIMEOUT = 5.0
"""Seconds from the end of git to the end of its error output, which another program may keep open."""
_PIECE = 1 << 18
"""Bytes of a blob that are in memory at once."""
_FAULTS = (
    (r"could not resolve host|unable to look up|name or service not known", "the host name is unknown"),
    (r"authentication failed|could not read (user|pass)|permission denied|returned error: 40[13]|terminal prompts disabled",
     "the server refuses access"),
    (r"certificate (verification|problem)",
     "its server's certificate is not trusted; have this host trust its authority, or start arkqueue with GIT_SSL_CAINFO=FILE"),
    (r"not found|does not appear to be a git repository|is this a git repository|no such file|not exported|access denied or repository",
     "there is no such repository, or no right to read it"),
    (r"host key verification failed", "its host key is not known, or another one than it was; see ~/.ssh/known_hosts"),
    (r"connection refused|connection timed out|connection reset|(unable|failed) to connect|hung up|early eof",
     "the server does not answer"),
    (r"no space left", "the disk of this host is full"),
    (r"out of memory|malloc failed|cannot allocate memory", "it needs more memory than git may have (4 GiB) or the host has"),
)  # fmt: skip
_BOILERPLATE = "Please make sure you have the correct access rights\nand the repository exists."
"""The last line of git's message for every remote that does not answer correctly."""
_running: set[subprocess.Popen[bytes]] = set()
_starting = threading.Lock()


class LongAnswer(ArchiveUnreachable):
    """git's output is longer than its caller reads."""


def run_git(
    thing: str,
    *arguments: str,
    timeout: float,
    given: bytes | None = None,
    longest: int = LONGEST_ANSWER,
    longest_file: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run git. Returns its output. A failure is `ArchiveUnreachable`, with our own words for known
    messages.

    git has a process group of its own. The whole group is ended if git takes longer than
    ``timeout`` (seconds), or prints more than ``longest`` bytes. ``given``: its standard input.
    ``longest_file``: the most bytes of a file that it may write. ``variables``: additional
    environment variables, also for the programs that git starts.
    """
    code, out, err = _run(thing, arguments, timeout, given, longest, longest_file, variables)
    if code:
        raise _fault(thing, code, err)
    return out.decode(errors="surrogateescape")


def is_ancestor(repository: str, id: str, head: str) -> bool:
    """True if a commit is an ancestor of another one. A failure is `ArchiveUnreachable`."""
    code, _, err = _run(
        repository, ["--git-dir", repository, "merge-base", "--is-ancestor", id, head], ANCESTRY_TIMEOUT
    )
    if code > 1:
        raise _fault(repository, code, err)
    return code == 0


def commit_called(repository: str, name: str) -> str | None:
    """The id of the commit that git finds for a name; None if there is none. A failure is
    `ArchiveUnreachable`.
    """
    words = ["--git-dir", repository, "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"]
    code, out, err = _run(repository, words, ANCESTRY_TIMEOUT)
    if code > 1:
        raise _fault(repository, code, err)
    return out.decode().strip() or None


def beginning_of_commit(repository: str, id: str, length: int) -> bytes:
    """The first bytes of a commit that is too long for this process to read whole. A failure is
    `ArchiveUnreachable`.
    """
    command = ["env", "GIT_ALLOW_PROTOCOL=", *_GIT, "--git-dir", repository, "cat-file", "commit", id]
    with _started(repository, command, stdin=subprocess.DEVNULL) as (process, messages):
        assert process.stdout is not None
        if found := process.stdout.read(length):
            process.kill()
            return found
        raise _fault(repository, process.wait(), messages.end())


def _run(
    thing: str,
    arguments: Sequence[str],
    timeout: float,
    given: bytes | None = None,
    longest: int = LONGEST_ANSWER,
    longest_file: int | None = None,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, bytes, bytes]:
    """Run git. Returns its exit code, its output and the end of its error output."""
    command = ["env", *(f"{name}={value}" for name, value in (variables or {}).items()), *_GIT, *arguments]
    if longest_file is not None:
        command = ["sh", "-c", 'ulimit -f "$0" && exec "$@"', str(longest_file // 512), *command]
    until = time.monotonic() + timeout
    with _as_file(given) as stdin, _started(thing, command, stdin=stdin) as (process, messages):
        assert process.stdout is not None
        try:
            (out,) = read_outputs(process.stdout, longest=longest, until=until)
            process.wait(max(0.0, until - time.monotonic()))
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, LongOutput):
                raise LongAnswer(thing, f"the answer of git is longer than {longest:,} bytes") from error
            if isinstance(error, (TimeoutError, subprocess.TimeoutExpired)):
                raise ArchiveUnreachable(thing, f"git did not finish within {timeout:g} s") from error
            raise
    return process.returncode, out, messages.end()


@contextmanager
def _as_file(given: bytes | None) -> Iterator[IO[bytes] | int]:
    """The standard input of a program."""
    if given is None:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        yield file


def read_blobs(thing: str, repository: str, ids: Sequence[str]) -> Generator[Iterator[bytes], None, None]:
    """The contents of a repository's blobs, each in pieces, which the caller takes before the next
    blob.

    git resolves the deltas of a pack several times as fast as libgit2, and on another processor;
    its start costs too much for a few blobs. No other repository is asked, whatever this one's
    configuration says. A failure is `ArchiveUnreachable`.
    """
    command = ["env", "GIT_ALLOW_PROTOCOL=", *_GIT, "--git-dir", repository, "cat-file", "--batch", "--buffer"]
    asked = "".join(f"{id}\n" for id in ids).encode()
    with _as_file(asked) as stdin, _started(thing, command, stdin=stdin) as (process, messages):
        answers = process.stdout
        assert answers is not None

        def fault(answer: bytes) -> ArchiveUnreachable:
            answers.close()
            code = process.wait()
            return _fault(thing, code, messages.end() or answer)

        def pieces(size: int) -> Iterator[bytes]:
            while size:
                piece = answers.read(min(size, _PIECE))
                if not piece:
                    raise fault(b"it ended within a file")
                size -= len(piece)
                yield piece
            answers.read(1)  # the end of the line

        try:
            for _ in ids:
                answer = answers.readline(_PIECE)
                _, kind, size = [*answer.split(), b"", b"", b""][:3]
                if kind != b"blob":
                    raise fault(answer or b"it ended early")
                yield pieces(int(size))
        finally:
            process.kill()


class _Messages(threading.Thread):
    """Reads git's error output as git writes it, and keeps the end of it."""

    def __init__(self, pipe: int) -> None:
        super().__init__(name="read what git says", daemon=True)
        self._pipe, self._kept = pipe, b""

    def run(self) -> None:
        with open(self._pipe, "rb", buffering=0) as pipe:
            while piece := pipe.read(LONGEST_MESSAGE):
                self._kept = (self._kept + piece)[-LONGEST_MESSAGE:]

    def end(self) -> bytes:
        """The end of the error output of a git that has ended."""
        self.join(MESSAGE_TIMEOUT)
        return self._kept


@contextmanager
def _started(
    thing: str, command: Sequence[str], *, stdin: IO[bytes] | int
) -> Iterator[tuple[subprocess.Popen[bytes], _Messages]]:
    ours, theirs = os.pipe()
    messages = _Messages(ours)
    messages.start()
    try:
        with _starting:
            process = subprocess.Popen(
                [*_in_its_memory(), *command],
                bufsize=_PIECE,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=theirs,
                process_group=0,
            )
            _running.add(process)
    except OSError as error:
        raise ArchiveUnreachable(thing, f"git cannot be run ({error.strerror})", "Install git.") from error
    finally:
        os.close(theirs)
    try:
        with process:
            yield process, messages
    finally:
        _running.discard(process)


@atexit.register
def end_all() -> None:
    """End all running git processes, and start no more. Their process groups get no signal from a
    terminal, so they would outlive this process.
    """
    _starting.acquire()  # never released: no git starts any more
    for process in list(_running):
        _end(process)


def _in_its_memory() -> list[str]:
    """The words before a git command that set its memory limit. It replaces the limit of the reader
    process (`reader.process`), because git packs and unpacks whole histories.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    return ["sh", "-c", 'ulimit -S -d "$0" && exec "$@"', str(most // 1024)]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git with SIGTERM first, so that it removes its lock files."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)


def _fault(thing: str, code: int, said: bytes) -> ArchiveUnreachable:
    if code == 127:
        return ArchiveUnreachable(thing, "git cannot be run", "Install git.")
    lines = said.decode(errors="replace").replace(_BOILERPLATE, "").strip()
    fault = next((words for pattern, words in _FAULTS if re.search(pattern, lines.lower())), "git failed")
    return ArchiveUnreachable(thing, f"{fault} (git: {' / '.join(lines.splitlines()[-2:])})")
