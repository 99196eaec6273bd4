"""What only the SQLite store promises: its file, its writer thread, and what happens when the disk says no."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perdure.core.agents import Agent
from perdure.core.conversations import MessageCounts
from perdure.core.errors import InvalidInput, NotAStore, PerdureError, StoreClosed, StoreFull, StoreReadOnly
from perdure.core.ids import AgentId, ConversationId, FileId, MessageId, id_in_run
from perdure.core.messages import Draft, Text
from perdure.core.runs import Run
from perdure.features.files.file_tables import Files
from perdure.storage.stores import sqlite
from perdure.storage.stores.sqlite_store import SqliteStore
from perdure.storage.tx import Tx
from perdure.testing.clock import START, SequentialIds
from tests.contracts.base import ADA, Contract, list_texts, match_messages

pytestmark = pytest.mark.migrates

units = Contract()
"""For its units of work; it opens nothing."""


def open_store(path: Path, *, max_pages: int = 1 << 30) -> SqliteStore:
    """A store whose file can't have more pages than this, as on a full disk."""
    store = SqliteStore.open(path, at=START)
    store._writer.execute(f"PRAGMA max_page_count = {max_pages}")
    return store


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs `program`, with our packages."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output_of(process: subprocess.Popen[str]) -> str:
    """What the process printed, when it ended well."""
    out, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    return out.strip()


# -- several processes -------------------------------------------------------------------------------------------------

WRITER = """
    import asyncio, sys
    from pathlib import Path
    from perdure.core.ids import AgentId
    from perdure.storage.stores.sqlite_store import SqliteStore
    from perdure.testing.clock import START, SequentialIds
    from tests.contracts.base import Contract

    async def main(path, agent_id, name):
        units = Contract()
        units.ids = SequentialIds(salt=int(name))
        store = SqliteStore.open(Path(path), at=START)
        print("open", flush=True)
        for index in range(20):
            await store.write(units.say, AgentId(agent_id), f"{name} says {index}")
        await store.close()

    asyncio.run(main(*sys.argv[1:]))
"""


async def test_each_commit_waits_for_the_disk(tmp_path: Path) -> None:
    """Stores of other tests do not: this is the setting that their copies have off."""
    store = open_store(tmp_path / "perdure.db")
    assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    await store.close()


async def test_a_relative_path_names_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for readers that are opened after the program went to another folder."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    store = SqliteStore.open(Path("perdure.db"), at=START)
    monkeypatch.chdir(other)
    agent = await store.write(units.add_agent)

    assert await store.read(lambda tx: tx.agents.get(agent.id)) == agent
    assert [*other.iterdir()] == []
    await store.close()


@pytest.mark.slow
async def test_two_processes_write_into_one_file(tmp_path: Path) -> None:
    """Nothing is lost, nothing doubled, the numbers have no gap, and each process's messages are in its order."""
    path = tmp_path / "perdure.db"
    store = open_store(path)
    agent = await store.write(units.add_agent)
    processes = [python(WRITER, path, agent.id, number) for number in (1, 2)]
    for index in range(20):
        await store.write(units.say, agent.id, f"0 says {index}")
    for process in processes:
        await asyncio.to_thread(output_of, process)
    messages = await store.read(lambda tx: tx.messages.list(agent.id, limit=1000))
    await store.close()

    assert [message.seq for message in messages] == list(range(60))
    for name in "012":
        mine = [message.text for message in messages if message.text.startswith(name)]
        assert mine == [f"{name} says {index}" for index in range(20)]


OPENER = """
    import asyncio, sys
    from pathlib import Path
    from perdure.storage.stores.sqlite_store import SqliteStore
    from perdure.testing.clock import START

    async def main(path):
        print("ready", flush=True)
        sys.stdin.readline()
        store = SqliteStore.open(Path(path), at=START)
        print(len(await store.read(lambda tx: tx.agents.list())))
        await store.close()

    asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
def test_opening_a_new_store_twice_at_once_is_safe(tmp_path: Path) -> None:
    """Several processes create the same file at the same moment: each gets the one store."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(OPENER), str(tmp_path / "perdure.db")],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()

    assert [output_of(process) for process in processes] == ["0"] * 4


def test_opening_a_new_store_from_many_threads_is_safe(tmp_path: Path) -> None:
    """As with processes, and often enough to meet the moment when the journal changes."""

    async def open_and_close(path: Path) -> None:
        store = await asyncio.to_thread(open_store, path)
        await store.read(lambda tx: tx.agents.list())
        await store.close()

    async def race() -> None:
        for round_ in range(10):
            await asyncio.gather(*(open_and_close(tmp_path / str(round_) / "perdure.db") for _ in range(4)))

    asyncio.run(race())


# -- places that can't be written --------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["/proc/perdure", "/sys/perdure"])
def test_a_folder_that_cannot_be_created_is_told(folder: str) -> None:
    """The error names the folder and the setting that chooses another."""
    with pytest.raises(StoreReadOnly, match=f"{folder} can't be created .*PERDURE_HOME"):
        open_store(Path(folder) / "perdure.db")


def test_a_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    """A file stands where the data folder should be."""
    (tmp_path / "data").write_text("mine")
    with pytest.raises(StoreReadOnly, match="can't be created"):
        open_store(tmp_path / "data" / "perdure.db")

    assert (tmp_path / "data").read_text() == "mine"


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    """The error names a file that could be one; the folder stays as it was."""
    with pytest.raises(NotAStore, match=r"is a folder: name a file in it, such as .*perdure\.db"):
        open_store(tmp_path)

    assert names_in(tmp_path) == []


UNPRIVILEGED = """
    import asyncio, os, sys
    from pathlib import Path
    from perdure.core.errors import StoreError
    from perdure.storage.stores.sqlite_store import SqliteStore
    from perdure.testing.clock import START
    from tests.contracts.base import Contract

    async def main(path):
        os.setgid(65534)
        os.setuid(65534)
        try:
            store = SqliteStore.open(Path(path), at=START)
            await store.write(Contract().add_agent)
        except StoreError as error:
            print(type(error).__name__, error)

    asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("is_there", [False, True])
def test_a_read_only_folder_is_told(is_there: bool) -> None:
    """A user who may not write gets a typed error that names the file, whether the store exists or not."""
    # Not in pytest's folder, through which another user can't pass.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "perdure.db"
        if is_there:
            asyncio.run(open_store(path).close())
            path.chmod(0o444)
        folder.chmod(0o555)

        printed = output_of(python(UNPRIVILEGED, path))
        assert printed.startswith("StoreReadOnly")
        assert str(path) in printed
        assert names_in(folder) == (["perdure.db"] if is_there else [])


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_other_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    """A text file, another program's database, and one that another program has marked as its own stay as they are."""
    text, foreign, marked = tmp_path / "notes.db", tmp_path / "foreign.db", tmp_path / "marked.db"
    text.write_text("Dear diary, this is no database. " * 100)
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (a)")
    connection.close()
    with sqlite3.connect(marked) as connection:
        connection.execute("PRAGMA application_id = 1234")
    connection.close()
    for path in (text, foreign, marked):
        before = path.read_bytes()
        with pytest.raises(NotAStore, match=str(path)):
            open_store(path)

        assert path.read_bytes() == before, path
    assert names_in(tmp_path) == ["foreign.db", "marked.db", "notes.db"]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """A file that `touch` or `mktemp` made is as good as none."""
    path = tmp_path / "perdure.db"
    path.touch()
    store = open_store(path)
    asyncio.run(store.close())

    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA application_id").fetchone()[0] == sqlite.APPLICATION_ID
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    connection.close()


# -- a full disk -------------------------------------------------------------------------------------------------------


async def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """Writing ends in a typed error that leaves nothing behind, reading goes on; with more room writing does too."""
    path = tmp_path / "perdure.db"
    store = open_store(path, max_pages=320)
    agent = await store.write(units.add_agent)
    acknowledged: list[str] = []
    failure: PerdureError | None = None
    while failure is None:
        texts = [f"walrus {len(acknowledged) + index} " + "x" * 1500 for index in range(5)]
        try:
            await store.write(units.say, agent.id, *texts)
        except StoreFull as error:
            failure = error
        else:
            acknowledged += texts

    assert acknowledged
    assert str(path) in str(failure)
    assert await store.read(list_texts, agent.id) == acknowledged
    assert await store.read(lambda tx: tx.messages.count(agent.id)) == len(acknowledged)
    assert len(await store.read(match_messages, agent.id, "walrus", limit=1000)) == len(acknowledged)
    await store.close()

    store = open_store(path, max_pages=400)
    (message,) = await store.write(units.say, agent.id, "there is room again")
    found = await store.read(match_messages, agent.id, "room")
    await store.close()
    assert message.seq == len(acknowledged)
    assert found == [message.seq]


async def test_a_full_disk_is_usable_again_once_something_is_deleted(tmp_path: Path) -> None:
    """Deleting an agent needs no more room than there is, and makes some."""
    store = open_store(tmp_path / "perdure.db", max_pages=300)
    big, small = await store.write(units.add_agent, "big"), await store.write(units.add_agent, "small")
    with pytest.raises(StoreFull):
        for _ in range(1000):
            await store.write(units.say, big.id, "walrus " + "x" * 3000)
    await store.write(lambda tx: tx.agents.delete(big.id))
    while await store.write(lambda tx: tx.upkeep.carry_out_deletes()):
        pass
    for _ in range(20):
        await store.write(units.say, small.id, "penguin " + "x" * 3000)

    assert len(await store.read(match_messages, small.id, "penguin")) == 20
    await store.close()


async def test_units_that_were_waiting_when_the_disk_filled_are_each_told(tmp_path: Path) -> None:
    """Of many writes at once on a full disk, each is either durable or refused, never neither."""
    path = tmp_path / "perdure.db"
    store = open_store(path, max_pages=150)
    agent = await store.write(units.add_agent)
    texts = [f"message {index} " + "x" * 2000 for index in range(200)]
    outcomes = await asyncio.gather(*(store.write(units.say, agent.id, text) for text in texts), return_exceptions=True)
    await store.close()

    kept = [text for text, outcome in zip(texts, outcomes, strict=True) if not isinstance(outcome, BaseException)]
    refused = {type(outcome) for outcome in outcomes if isinstance(outcome, BaseException)}
    store = open_store(path)
    stored = await store.read(list_texts, agent.id)
    await store.close()
    assert refused == {StoreFull}
    assert stored == kept


# -- the writer thread -------------------------------------------------------------------------------------------------


async def test_writes_that_arrive_together_share_a_commit(tmp_path: Path) -> None:
    """A hundred units at once take far fewer commits than a hundred, and each is on the disk when it is told."""
    path = tmp_path / "perdure.db"
    store = open_store(path)
    agent = await store.write(units.add_agent)
    commits: set[int] = set()

    def unit(tx: Tx, index: int) -> None:
        units.say(tx, agent.id, f"message {index}")
        commits.add(_commits_seen_from_outside(path))

    await asyncio.gather(*(store.write(unit, index) for index in range(100)))
    stored = await store.read(list_texts, agent.id)
    await store.close()

    assert stored == [f"message {index}" for index in range(100)]
    assert len(commits) <= 10


def _commits_seen_from_outside(path: Path) -> int:
    """How many messages another process would see now: it grows by whole commits."""
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM messages").fetchone()[0])
    finally:
        connection.close()


async def test_what_is_acknowledged_is_committed(tmp_path: Path) -> None:
    """Another program that looks at the file after the acknowledgement sees the message."""
    path = tmp_path / "perdure.db"
    store = open_store(path)
    agent = await store.write(units.add_agent)
    for index in range(1, 6):
        await store.write(units.say, agent.id, "hello")
        assert _commits_seen_from_outside(path) == index
    await store.close()


async def test_closing_finishes_what_was_accepted(tmp_path: Path) -> None:
    """Writes that were given before `close` are done and told; those after it are refused."""
    path = tmp_path / "perdure.db"
    store = open_store(path)
    agent = await store.write(units.add_agent)
    writes = [asyncio.create_task(store.write(units.say, agent.id, f"message {index}")) for index in range(50)]
    await asyncio.sleep(0)  # each task has now given its unit away
    await store.close()
    with pytest.raises(StoreClosed):
        await store.write(units.say, agent.id, "too late")

    assert [(await write)[0].seq for write in writes] == list(range(50))
    store = open_store(path)
    assert len(await store.read(list_texts, agent.id)) == 50
    await store.close()


async def test_a_caller_that_gave_up_disturbs_nobody(tmp_path: Path) -> None:
    """A cancelled write may or may not be done; those around it are done and told."""
    store = open_store(tmp_path / "perdure.db")
    agent = await store.write(units.add_agent)
    writes = [asyncio.create_task(store.write(units.say, agent.id, f"message {index}")) for index in range(9)]
    await asyncio.sleep(0)
    writes[4].cancel()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    stored = await store.read(list_texts, agent.id)
    await store.close()

    others = [outcome for index, outcome in enumerate(outcomes) if index != 4]
    assert [type(outcome).__name__ for outcome in others] == ["list"] * 8
    assert {f"message {index}" for index in range(9) if index != 4} <= set(stored)


async def test_a_deleted_agent_leaves_no_row_behind(tmp_path: Path) -> None:
    """Looked at from outside, no table and no index knows anything of it."""
    path = tmp_path / "perdure.db"
    store = open_store(path)
    ids = SequentialIds(salt=7)
    agent = Agent(
        id=AgentId(ids.new("agent")),
        org_id=await store.read(lambda tx: tx.org_id),
        name="gone",
        model="test/model",
        created_at=START,
        updated_at=START,
    )

    def fill(tx: Tx) -> None:
        added = tx.agents.add(agent)
        tx.conversations.add(agent.id, ConversationId(ids.new("conversation")), at=START)
        run = units.add_run(tx, agent.id)
        units.say(tx, agent.id, "a walrus", "...", run=run)
        units.add_block(tx, "human", agent_id=agent.id)
        units.add_archive(tx, agent_id=agent.id)
        tx.runs.remember_key(run.key, 0, "key", digest="d")
        assert added.number > 0

    await store.write(fill)
    await store.write(lambda tx: tx.agents.delete(agent.id))
    while await store.write(lambda tx: tx.upkeep.carry_out_deletes()):
        pass
    await store.close()

    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    left = {}
    for table in tables:
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        for column in columns & {"agent_id", "owner_id"} | ({"id"} if table == "agents" else set()):
            count = connection.execute(f"SELECT COUNT(*) FROM {table} WHERE {column} = ?", [agent.id]).fetchone()[0]
            if count:
                left[table] = count
    left["words"] = len(
        connection.execute("SELECT rowid FROM message_words WHERE message_words MATCH 'walrus'").fetchall()
    )
    connection.execute("INSERT INTO message_words (message_words) VALUES ('integrity-check')")
    connection.close()
    assert len(tables) > 20
    assert left == {"words": 0}


async def test_the_store_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """What people told their agents is their own."""
    path = tmp_path / "new" / "perdure.db"
    store = SqliteStore.open(path, at=START)
    await store.close()

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_copy_made_by_sqlite_works_as_fast_as_the_original(tmp_path: Path) -> None:
    """VACUUM INTO leaves a rollback journal; opening the copy turns WAL on again."""
    original, copy = tmp_path / "perdure.db", tmp_path / "copy.db"
    await SqliteStore.open(original, at=START).close()
    with contextlib.closing(sqlite3.connect(original)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    await SqliteStore.open(copy, at=START).close()

    with contextlib.closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_a_number_that_no_column_holds_is_bad_input(tmp_path: Path) -> None:
    """Reading and writing refuse it alike, and the store works on."""
    store = open_store(tmp_path / "perdure.db")
    agent = await store.write(units.add_agent)
    for verb in (store.read, store.write):
        with pytest.raises(InvalidInput, match="a number is too large for the database"):
            await verb(lambda tx: tx.messages.list(agent.id, before_seq=10**30))
    assert await store.write(lambda tx: tx.messages.count(agent.id)) == 0
    await store.close()


def steps(path: Path, work: Callable[[Tx], object]) -> int:
    """How many SQLite's machine takes for it; nothing of it is kept."""
    with contextlib.closing(sqlite.connect(path)) as connection:
        made = itertools.count()
        database = sqlite.SqliteDatabase(connection)
        database.begin()
        connection.set_progress_handler(lambda: next(made) and 0, 1)
        work(Tx(database))
        connection.set_progress_handler(None, 1)
        connection.execute("ROLLBACK")
        return next(made)


async def test_finding_what_a_run_said_takes_as_long_in_a_long_log_as_in_a_short_one(tmp_path: Path) -> None:
    """By an id that leads to the run, and by the run; counted in steps of SQLite's machine, with what other
    conversations said in between."""
    path = tmp_path / "perdure.db"
    store = open_store(path)

    def fill(tx: Tx) -> tuple[Agent, Run, MessageId]:
        agent = units.add_agent(tx)
        tx.conversations.add(agent.id, ConversationId(units.ids.new("conversation")), at=START)
        return agent, *add_answered_run(tx, agent.id, 0)

    def add_answered_run(tx: Tx, agent_id: AgentId, conversation_seq: int) -> tuple[Run, MessageId]:
        run = units.add_run(tx, agent_id, conversation_seq=conversation_seq)
        ids = (
            MessageId(id_in_run(run.id, "input", 0, units.ids)),
            MessageId(id_in_run(run.id, "answer", 0, units.ids)),
        )
        drafts = [Draft(id=id_, role="user", parts=(Text("hello"),)) for id_ in ids]
        tx.messages.append(run, drafts, [1, 1], at=START)
        return tx.runs.end(run, reason="end_turn", usage=run.usage, step_count=1, failure=None, at=START), ids[1]

    agent, run, answer = await store.write(fill)

    def count_steps() -> list[int]:
        return [
            steps(path, lambda tx: tx.messages.place(answer)),
            steps(path, lambda tx: tx.messages.find_existing([answer])),
            steps(path, lambda tx: tx.messages.list_by_run(run)),
        ]

    def more(tx: Tx, runs: int) -> None:
        for index in range(runs):
            add_answered_run(tx, agent.id, min(index, 1))  # of the first conversation only one

    await store.write(more, 3)
    short = await asyncio.to_thread(count_steps)
    await store.write(more, 300)
    long = await asyncio.to_thread(count_steps)
    await store.close()

    assert min(short) > 0
    assert all(now < 2 * before for before, now in zip(short, long, strict=True)), (short, long)


async def test_reading_a_conversation_takes_as_long_whatever_others_say_meanwhile(tmp_path: Path) -> None:
    """Of the same agent; also resetting it, and each step of carrying that out."""
    path = tmp_path / "perdure.db"
    store = open_store(path)

    def fill(tx: Tx) -> Agent:
        agent = units.add_agent(tx)
        tx.conversations.add(agent.id, ConversationId(units.ids.new("conversation")), at=START)
        return agent

    def talk(tx: Tx, others: int) -> None:
        for _ in range(8):
            units.say(tx, agent.id, "hello there")
            for _ in range(others):
                units.say(tx, agent.id, "hello here", conversation_seq=1)

    def reset(tx: Tx) -> None:
        counted = MessageCounts(next_seq=0, settings_revision=0, counts={})
        assert tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=START, counts=counted)
        tx.resets.carry_out(agent.id, limit=4)

    def count_steps() -> list[int]:
        return [
            steps(path, lambda tx: tx.messages.view(agent.id, 0, from_seq=0, upto_seq=2**40)),
            steps(path, lambda tx: tx.messages.view(agent.id, 0, from_seq=0, upto_seq=2**40, settings_revision=0)),
            steps(path, lambda tx: tx.messages.list(agent.id, conversation_seq=0, limit=4, newest_first=True)),
            steps(path, lambda tx: tx.captures.get_backlog(agent.id, 0)),
            steps(path, lambda tx: tx.conversations.list_view_ids([(agent.id, 0)], limit=4)),
            steps(path, reset),
        ]

    agent = await store.write(fill)
    await store.write(talk, 0)
    alone = await asyncio.to_thread(count_steps)
    await store.write(lambda tx: tx.agents.delete(agent.id))
    while await store.write(lambda tx: tx.upkeep.carry_out_deletes()):
        pass
    agent = await store.write(fill)
    await store.write(talk, 60)
    among_others = await asyncio.to_thread(count_steps)
    await store.close()

    assert min(alone) > 0
    assert all(now < 2 * before for before, now in zip(alone, among_others, strict=True)), (alone, among_others)


async def test_units_that_take_long_don_t_wait_for_each_other(tmp_path: Path) -> None:
    """Of many that arrive together only as many share a commit as take a moment; small ones still share it."""
    store = open_store(tmp_path / "perdure.db")
    commits: list[int] = []
    done: list[int] = []

    def note_commit(statement: str) -> None:
        if statement == "COMMIT":
            commits.append(len(done))

    store._writer.set_trace_callback(note_commit)

    def unit(tx: Tx, number: int, seconds: float) -> None:
        began = time.thread_time()
        while time.thread_time() - began < seconds:
            pass
        done.append(number)

    await asyncio.gather(*(store.write(unit, number, 0.03) for number in range(9)))
    long, commits[:], done[:] = len(commits), [], []
    await asyncio.gather(*(store.write(unit, number, 0.0) for number in range(100)))
    await store.close()

    assert long >= 5
    assert len(commits) < 50


async def test_who_waits_for_a_file_to_be_written_anew_hears_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In MB of the log, up to the size of the file."""
    monkeypatch.setattr("perdure.storage.stores.sqlite_store.SCRUB_LOOK_S", 0.001)
    seen: list[tuple[int, int]] = []
    store = SqliteStore.open(tmp_path / "big.db", at=START)
    await store.write(lambda tx: tx.of(Files).put_bytes(FileId("file-1"), 0, bytes(8 << 20), at=START))

    await store.scrub(lambda done, total: seen.append((done, total)))
    await store.close()

    assert seen and all(0 <= done <= total for done, total in seen)
    assert max(seen)[0] > 0
