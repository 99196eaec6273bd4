"""What one process tells the others of a PostgreSQL store: short topics, by LISTEN and NOTIFY, after its commits.

NOTIFY inside a transaction holds a lock of the whole database until the commit is on the disk, so that no two commits
share a flush. So topics are sent after the commit instead, those of many commits together, by the connection that also
listens. A topic can be lost with its process: whoever waits looks by itself from time to time.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg

log = logging.getLogger(__name__)

Hear = Callable[[Sequence[str] | None], None]
"""Takes the topics of others; None: some may have been missed."""

EVERYTHING = "*"
PENDING_MAX = 5_000
TOPICS_A_PAYLOAD = 60  # PostgreSQL takes 8,000 bytes, a topic has at most 100
ROUND_S = 0.01
"""The least time between two rounds of sending and hearing: under load many commits share one."""
PAUSE_S, PAUSE_MAX_S = 0.1, 2.0


class PostgresSignals:
    """Sends and hears topics over one connection, in a thread of its own from the first use to `close`."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._parameters = {**parameters, "application_name": "perdure signals"}
        self._hearers: list[Hear] = []
        self._pending: dict[str, None] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._wake_out, self._wake_in = os.pipe()
        self._thread: threading.Thread | None = None

    def listen(self, hear: Hear) -> None:
        """Have `hear` called with the topics of other processes from now on, in another thread."""
        with self._lock:
            self._hearers.append(hear)
            self._start()

    def send(self, topics: Iterable[str]) -> None:
        """Have these topics told to other processes soon, without waiting for it."""
        with self._lock:
            if self._closed.is_set():
                return
            was_empty = not self._pending
            self._pending.update(dict.fromkeys(topics))
            if len(self._pending) > PENDING_MAX:
                self._pending = {EVERYTHING: None}
            self._start()
            if was_empty:
                os.write(self._wake_in, b".")

    def close(self) -> None:
        """Send what is pending, and stop."""
        with self._lock:
            thread, self._thread = self._thread, None
            if self._closed.is_set():
                return
            self._closed.set()
            os.write(self._wake_in, b".")
        if thread is not None:
            thread.join(5)
        if thread is None or not thread.is_alive():
            os.close(self._wake_in)
            os.close(self._wake_out)

    def _start(self) -> None:
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._work, name="perdure-signals", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        """Connect, again and again, and exchange topics."""
        pause_s = PAUSE_S
        while not self._closed.is_set() or (self._pending and pause_s == PAUSE_S):
            try:
                with psycopg.connect(**self._parameters, autocommit=True) as connection:
                    channel = _channel(connection)
                    own = connection.info.backend_pid

                    def hear(note: psycopg.Notify, own: int = own) -> None:
                        """Pass on a notification of another process."""
                        if note.pid != own:
                            self._hear(note.payload)

                    connection.execute("SET synchronous_commit = off")  # topics need not outlive the server
                    connection.add_notify_handler(hear)  # for those that come with an answer
                    connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
                    pause_s = PAUSE_S
                    self._hear(EVERYTHING)
                    self._exchange(connection, channel)
            except (psycopg.Error, OSError) as error:
                log.info("the connection for signals was lost, and is made again: %s", error)
                pause_s = min(PAUSE_MAX_S, pause_s * 2)
                self._closed.wait(pause_s)

    def _exchange(self, connection: psycopg.Connection[Any], channel: str) -> None:
        """Send and hear until the store is closed. Raises: psycopg.Error: the connection was lost."""
        own, last = connection.info.backend_pid, 0.0
        poll = select.poll()  # `select` takes no file of a number above 1,023
        for number in (connection.fileno(), self._wake_out):
            poll.register(number, select.POLLIN)
        while True:
            readable = {number for number, _ in poll.poll()}
            self._closed.wait(last + ROUND_S - time.monotonic())
            last = time.monotonic()
            if self._wake_out in readable:
                os.read(self._wake_out, 1_000)
                with self._lock:
                    topics = list(self._pending)
                    self._pending.clear()
                if topics:
                    payloads = _payloads(topics)
                    connection.execute("SELECT pg_notify(%s, p) FROM unnest(%s::text[]) p", (channel, payloads))
                if self._closed.is_set():
                    return
            connection.pgconn.consume_input()
            while (note := connection.pgconn.notifies()) is not None:
                if note.be_pid != own:
                    self._hear(note.extra.decode())

    def _hear(self, payload: str) -> None:
        """Pass the topics of a payload to each listener; None if there were too many for one payload."""
        topics = payload.split(",")
        is_any = payload == "" or EVERYTHING in topics
        for hear in self._hearers:
            with contextlib.suppress(RuntimeError):  # its event loop has ended
                hear(None if is_any else topics)


def _channel(connection: psycopg.Connection[Any]) -> str:
    """The channel of the store: notifications belong to a database, which may hold several stores."""
    row = connection.execute("SELECT current_schema()").fetchone()
    return f"perdure_{hashlib.sha256(str(row and row[0]).encode()).hexdigest()[:16]}"


def _payloads(topics: Sequence[str]) -> list[str]:
    """The topics as payloads of notifications, each with as many as it can hold, separated by commas."""
    starts = range(0, len(topics), TOPICS_A_PAYLOAD)
    return [",".join(topics[start : start + TOPICS_A_PAYLOAD]) for start in starts]
