"""The logs of attempts: written as chunks while a task runs, read and followed by people.

A log counts the bytes of a task's output in the order in which they were read from its pipes. A chunk's *position* is that of its
first byte. Of a long log the head and the tail are kept. The middle is dropped, and the gap in the positions is the mark of the cut: readers
get it as ``Chunk.cut``. Bytes are stored as they came; to make control characters harmless is the reader's business.

    task → executor → LogWriter.write (memory) → Logs.flush (one statement for all attempts) → log_chunk → read, follow

The flusher writes one turn each ``INTERVAL``, and the first bytes after a silence at once. An attempt that is faster gets turn after turn as long as
all of it will be kept. Of a log that is too long to keep, the flusher writes ``TURN`` bytes a turn. Bytes in memory that would be cut
from the log anyway are dropped and never written. So what waits is bounded by head and tail for each attempt, even while the database is away, and neither a slow
database nor a chatty task stops the other. Bytes that wait behind the next turn are in a file (``overflow``). They stay in
memory where the disk has no room, or where chunks are short, as when two streams take turns.

With the bytes of a log it is stored how many of them came from each stream of the task. So a task manager that adopts a container knows how much of its
output is in the log already, and goes on at the next byte (``Logs.adopt``).

Every write matches the attempt and its process, and only while the attempt is live (design 6); a log is complete before its task's state
changes, because the task manager's recorder calls ``flush`` before it reports the end. Nobody else writes logs.
"""

from arkqueue.logs.follow import Followed, Watcher
from arkqueue.logs.read import Chunk, Page, read
from arkqueue.logs.write import HEAD, TAIL, Logs, LogWriter

__all__ = ["HEAD", "TAIL", "Chunk", "Followed", "LogWriter", "Logs", "Page", "Watcher", "read"]
