"""The logs of attempts: written as chunks while a task runs, read and followed by people.

A log counts the bytes of a task's output in the order in which they were read from its pipes. The
*position* of a chunk is that of its first byte. A long log keeps its head and its tail. The middle
is dropped, and the gap in the positions marks the cut: readers get it as ``Chunk.cut``. Bytes are
stored as they came; readers make control characters harmless.

    task → executor → LogWriter.write (memory) → Logs.flush (one statement for all attempts) → log_chunk → read, follow

The flusher writes once each ``INTERVAL``, and the first bytes after a silence at once. If an attempt
writes faster, the flusher continues without a pause, as long as all of the output will be kept. If
the log is too long to keep, the flusher writes ``TURN`` bytes in each iteration. Bytes in memory that
the cut would drop are never written. So head and tail limit the waiting bytes of each attempt, even
while the database is away, and neither a slow database nor a chatty task stops the other. Waiting
bytes that the next iteration does not write are in a file (``overflow``). They stay in memory if the
disk has no room, or if chunks are short, for example when two streams alternate.

Besides the bytes of a log, arkqueue stores the number of bytes from each stream of the task. So a
task manager that adopts a container knows which part of its output is in the log already, and
continues at the next byte (``Logs.adopt``).

Every write names the attempt and its process, and succeeds only while the attempt is live (design
6). A log is complete before its task's state changes, because the task manager's recorder calls
``flush`` before it reports the end. Nobody else writes logs.
"""

from arkqueue.logs.follow import Followed, Watcher
from arkqueue.logs.read import Chunk, Page, read
from arkqueue.logs.write import HEAD, TAIL, Logs, LogWriter

__all__ = ["HEAD", "TAIL", "Chunk", "Followed", "LogWriter", "Logs", "Page", "Watcher", "read"]
