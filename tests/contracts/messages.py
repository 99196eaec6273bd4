"""Messages: numbers without gaps, texts as they were said, pages in order, and search within one agent."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.errors import NotFound
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, ConversationId, MessageId, OrgId, StepId
from perdure.core.messages import (
    TURN_FORMAT,
    Message,
    MessageFilter,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    TurnPart,
)
from perdure.core.text.words import Clause, Matches, Query, parse_query
from perdure.storage.tables.turns import PART, Turns
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, AWKWARD, LATER, Contract, claimed, match_messages, raises
from tests.contracts.forgetting import redact
from tests.contracts.plans import Explained

WORDS = (
    # (text, query, whether it is found)
    ("我昨天去了北京大学", "北京大学", True),  # a run within a run
    ("我昨天去了北京大学", "大学", True),  # its end
    ("我昨天去了北京大学", "学", True),  # the last character
    ("我昨天去了北京大学", "京", True),  # one in the middle
    ("我昨天去了北京大学", "学北", False),  # both there, not side by side
    ("東京タワーに行きたい", "タワー", True),  # Japanese, scripts mixed in one run
    ("서울에서 만나요", "서울", True),  # Korean, with a particle attached
    ("用Python写的爬虫", "python", True),  # a Latin word between Han
    ("用Python写的爬虫", "爬虫 python", True),  # both
    ("ฉันชอบกินข้าวผัด", "ข้าวผัด", True),  # Thai
    ("Ｐｅｒｄｕｒｅ　１２３", "perdure 123", True),  # full-width letters and digits
    ("She was running home", "run", True),  # a stem
    ("Он любит книги", "книга", True),  # a Russian stem
    ("Meet at the café", "cafe", True),  # without its accent
    ("Meet at the CAFÉ", "café", True),  # in capitals
    ("error code E4711-b", "e4711", True),  # letters and digits
    ("the build is green 🚀", "🚀", True),  # a symbol
    ("a plain text", "absent", False),
    ("one two three", '"two three"', True),  # a phrase
    ("one two three", '"three two"', False),  # not in this order
)
"""What a search must find, and must not, in either database."""


class MessageContract(Contract):
    async def test_messages_are_stored_as_they_were_said(self) -> None:
        """What `append` gives back is what is read from then on, every field of it."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> list[Message]:
                agent = self.add_agent(tx)
                run = claimed(tx, self.add_run(tx, agent.id).key)
                drafts = [
                    self.draft("hello", occurred_at=AT - timedelta(days=400)),
                    self.draft(
                        Reasoning("let me see", "signature"),
                        Text("I look."),
                        ToolCall("call_1", "look", '{"at": "not json'),
                        role="assistant",
                    ),
                    self.draft(ToolResult("call_1", "look", "found", "error", ("out", ""), ("err",)), role="tool"),
                    self.draft('{"type": "heartbeat"}', role="system", kind="heartbeat"),
                ]
                return list(tx.messages.append(run, drafts, [1, 2, 3, 4], at=AT, step_id=StepId(self.ids.new("step"))))

            messages = await store.write(fill)

            def read(tx: Tx) -> list[Message]:
                return list(tx.messages.list(messages[0].agent_id, kinds=None))

            assert [message.seq for message in messages] == [0, 1, 2, 3]
            assert [message.occurred_at for message in messages] == [AT - timedelta(days=400), AT, AT, AT]
            assert await store.read(read) == messages

    async def test_any_text_is_stored_and_found(self) -> None:
        """NUL, lone surrogates, escape sequences, emoji: the text comes back exactly, and its words find it."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def get(tx: Tx, message_id: MessageId) -> Message:
                return tx.messages.get(message_id)

            for index, text in enumerate(AWKWARD):
                text = f"{text} landmark{index}"
                draft = self.draft(Text(text), Reasoning(text, text), ToolCall(text, text, text), role="assistant")
                (message,) = await store.write(self.say, agent.id, draft)

                assert await store.read(get, message.id) == message
                assert await store.read(match_messages, agent.id, f"landmark{index}") == [message.seq]
                assert await store.read(match_messages, agent.id, text) != []

    async def test_a_megabyte_of_text_is_stored_and_found(self) -> None:
        """A long message is whole, and the words at its beginning and its end find it."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            text = "aardvark " + "the quick brown fox jumps over the lazy dog, once again. " * 18_000 + " zeppelin"
            (message,) = await store.write(self.say, agent.id, text)

            assert len(text) > 1_000_000
            assert await store.read(lambda tx: tx.messages.get(message.id)) == message
            assert await store.read(match_messages, agent.id, "aardvark") == [0]
            assert await store.read(match_messages, agent.id, "zeppelin") == [0]

    async def test_concurrent_appends_leave_no_gap(self) -> None:
        """Many tasks over two handles: every number once, none missing, and each batch side by side."""
        async with self.open_store() as one, self.open_store() as other:
            agent = await one.write(self.add_agent)
            batches = await asyncio.gather(
                *(
                    store.write(self.say, agent.id, f"{index} a", f"{index} b", f"{index} c")
                    for index in range(12)
                    for store in (one, other)
                )
            )

            numbers = sorted(message.seq for batch in batches for message in batch)
            assert numbers == list(range(72))
            for batch in batches:
                first = batch[0].seq
                assert [message.seq for message in batch] == [first, first + 1, first + 2]
            assert await other.read(lambda tx: tx.messages.count(agent.id)) == 72

    async def test_pages_go_both_ways(self) -> None:
        """A page begins after or before a number, forwards or backwards, and is as long as asked for."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(self.say, agent.id, *"abcdefg")

            def page(tx: Tx, **asked: object) -> str:
                return "".join(message.text for message in tx.messages.list(agent.id, **asked))  # type: ignore[arg-type]

            def pages(tx: Tx) -> dict[str, str]:
                return {
                    "first": page(tx, limit=3),
                    "next": page(tx, after_seq=2, limit=3),
                    "newest": page(tx, newest_first=True, limit=3),
                    "before": page(tx, before_seq=4, newest_first=True, limit=3),
                    "between": page(tx, after_seq=1, before_seq=4),
                    "none": page(tx, after_seq=6),
                }

            assert await store.read(pages) == {
                "first": "abc",
                "next": "def",
                "newest": "gfe",
                "before": "dcb",
                "between": "cd",
                "none": "",
            }

    async def test_a_page_begins_at_a_time(self) -> None:
        """That time included; of the messages' own times."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(self.say, agent.id, "before")
            await store.write(self.say, agent.id, "at", "that time", at=LATER)

            found = await store.read(lambda tx: tx.messages.list(agent.id, since=LATER))
            assert [message.text for message in found] == ["at", "that time"]

    async def test_messages_of_all_agents_are_in_one_order(self) -> None:
        """By time, then by agent and number; a page begins after or before a message of any of them."""
        async with self.open_store() as store:
            first, second = [await store.write(self.add_agent, name) for name in ("ada", "ben")]
            await store.write(self.say, first.id, "a", "b")
            await store.write(self.say, second.id, "c", "d", at=LATER)

            def pages(tx: Tx) -> dict[str, str]:
                found = {
                    "first": tx.messages.list_of_all_agents(limit=3),
                    "newest": tx.messages.list_of_all_agents(limit=3, newest_first=True),
                    "after": tx.messages.list_of_all_agents(after=(first.id, 1)),
                    "before": tx.messages.list_of_all_agents(before=(second.id, 0), newest_first=True),
                }
                return {name: "".join(message.text for message in page) for name, page in found.items()}

            assert await store.read(pages) == {"first": "abc", "newest": "dcb", "after": "cd", "before": "ba"}

    async def test_conversations_share_the_count_and_nothing_else(self) -> None:
        """Two conversations of one agent: one numbering over both; pages and views of one never show the other."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> AgentId:
                agent = self.add_agent(tx)
                second = tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                for index in range(3):
                    self.say(tx, agent.id, f"main {index}")
                    self.say(tx, agent.id, f"side {index}", conversation_seq=second.seq)
                return agent.id

            agent_id = await store.write(fill)

            def look(tx: Tx) -> list[list[tuple[int, str]]]:
                lists = [tx.messages.list(agent_id, conversation_seq=seq) for seq in (0, 1, None)]
                lists.append(tx.messages.view(agent_id, 1, from_seq=2, upto_seq=4))
                return [[(message.seq, message.text) for message in found] for found in lists]

            main = [(0, "main 0"), (2, "main 1"), (4, "main 2")]
            side = [(1, "side 0"), (3, "side 1"), (5, "side 2")]
            assert await store.read(look) == [main, side, sorted(main + side), [(3, "side 1")]]

            def conversations(tx: Tx) -> list[tuple[int, int]]:
                return [(one.seq, one.view_tokens) for one in tx.conversations.list(agent_id)]

            assert await store.read(conversations) == [(0, 30), (1, 30)]

    async def test_what_the_engine_added_is_in_view_but_not_in_history(self) -> None:
        """Engine messages are shown to the model, and are neither listed, counted nor found unless asked for."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> AgentId:
                agent = self.add_agent(tx)
                self.say(tx, agent.id, "hello", self.draft("hello envelope", role="system", kind="memory_delta"))
                return agent.id

            agent_id = await store.write(fill)

            def look(tx: Tx) -> list[list[int]]:
                return [
                    [message.seq for message in tx.messages.list(agent_id)],
                    [message.seq for message in tx.messages.list(agent_id, kinds=None)],
                    [message.seq for message in tx.messages.view(agent_id, 0, from_seq=0, upto_seq=9)],
                    [message.seq for message in tx.messages.newest(agent_id, where=MessageFilter(), limit=9)],
                    match_messages(tx, agent_id, "hello"),
                    [tx.messages.count(agent_id)],
                ]

            assert await store.read(look) == [[0], [0, 1], [0, 1], [0], [0], [1]]

    async def test_runs_tell_their_messages(self) -> None:
        """`of_run` holds what a run said, and nothing of the runs beside it."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> AgentId:
                agent = self.add_agent(tx)
                for index in range(3):
                    run = self.add_run(tx, agent.id)
                    self.say(tx, agent.id, f"question {index}", f"answer {index}", run=run, tokens=index + 1)
                return agent.id

            agent_id = await store.write(fill)

            def look(tx: Tx) -> list[list[str]]:
                return [[message.text for message in tx.messages.list_by_run(run)] for run in tx.runs.list(agent_id)]

            assert await store.read(look) == [[f"question {i}", f"answer {i}"] for i in (2, 1, 0)]

    async def test_words_of_all_languages_are_found(self) -> None:
        """Each query finds its text, or does not, as the table of examples says."""
        async with self.open_store() as store:
            wrong = []
            for text, query, is_found in WORDS:
                agent = await store.write(self.add_agent)
                await store.write(self.say, agent.id, text)
                for rows_after in range(2):  # with few messages it may be found by its row, with more by an index
                    if bool(await store.read(match_messages, agent.id, query)) != is_found:
                        wrong.append((text, query, rows_after))
                    await store.write(self.say, agent.id, *["nothing"] * 20)

            assert wrong == []

    async def test_search_stays_with_its_agent(self) -> None:
        """Another agent's words are never found, also when both share a query and a number."""
        async with self.open_store() as store:
            ada, bob = await store.write(self.add_agent, "ada"), await store.write(self.add_agent, "bob")
            await store.write(self.say, ada.id, "a walrus", "a penguin")
            await store.write(self.say, bob.id, "a penguin", "a walrus", "a walrus")

            assert await store.read(match_messages, ada.id, "walrus") == [0]
            assert await store.read(match_messages, bob.id, "walrus") == [1, 2]

    async def test_search_finds_messages_from_the_moment_they_are_stored(self) -> None:
        """Also while some are revised, removed or reset and others follow: those that hold the words, once each."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            said: dict[int, str] = {}

            def one_more(tx: Tx, number: int) -> None:
                text = f"walrus {'ice' if number % 3 else 'sea'} n{number}" + " and so on" * (number % 7 == 6) * 200
                self.say(tx, agent.id, text, role="user" if number % 2 else "assistant")
                said[number] = text
                if number % 5 == 4:
                    back = tx.messages.list_by_seqs(agent.id, [number - number % 4])[0]
                    text = f"penguin ice n{back.seq}"
                    tx.messages.revise(back.id, [Text(text)] if number % 2 else None, author=ADA, at=AT)
                    said[back.seq] = text if number % 2 else ""
                if number == 25:
                    tx.resets.add(tx.conversations.get_by_seq(agent.id, 0), author=ADA, at=AT)
                    said.clear()

            def look(tx: Tx, number: int) -> None:
                for query in ("walrus", "penguin", '"walrus sea"', f"n{number}", f"n{number - 3}"):
                    words = query.strip('"')
                    held = sorted(seq for seq, text in said.items() if f" {words} " in f" {text} ")
                    for below in (None, number, number - 5):
                        expected = [seq for seq in held if below is None or seq < below]
                        where = MessageFilter(before_seq=below)
                        assert match_messages(tx, agent.id, query, where=where) == expected, (number, query, below)
                        where = MessageFilter(before_seq=below, roles=("user",))
                        own = [seq for seq in expected if seq % 2]
                        assert match_messages(tx, agent.id, query, where=where) == own, (number, query, below)

            for number in range(40):
                await store.write(one_more, number)
                await store.read(look, number)
                checked = await store.read(lambda tx: [tx.upkeep.check(owner).faults for owner in tx.upkeep.owners()])
                assert not any(checked)

    async def test_search_keeps_to_its_filter(self) -> None:
        """Role, conversation, dates (both ends included) and number: all that are given hold."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            day = timedelta(days=1)

            def fill(tx: Tx) -> None:
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                roles: tuple[Role, ...] = ("user", "assistant", "tool")
                for index, role in enumerate(roles):
                    result = (ToolResult("c", "look", "walrus"),) if role == "tool" else ("walrus",)
                    self.say(tx, agent.id, self.draft(*result, role=role, occurred_at=AT + index * day))
                self.say(tx, agent.id, self.draft("walrus", occurred_at=AT + 3 * day), conversation_seq=1)

            await store.write(fill)
            cases: tuple[tuple[MessageFilter, list[int]], ...] = (
                (MessageFilter(), [0, 1, 2, 3]),
                (MessageFilter(roles=("user",)), [0, 3]),
                (MessageFilter(roles=("user", "tool")), [0, 2, 3]),
                (MessageFilter(roles=("system",)), []),
                (MessageFilter(conversation_seq=1), [3]),
                (MessageFilter(conversation_seq=7), []),
                (MessageFilter(since=AT + day), [1, 2, 3]),
                (MessageFilter(until=AT + day), [0, 1]),
                (MessageFilter(since=AT + day, until=AT + day), [1]),
                (MessageFilter(since=AT + day + timedelta(microseconds=1), until=AT + 2 * day), [2]),
                (MessageFilter(before_seq=2), [0, 1]),
                (MessageFilter(before_seq=3, roles=("user", "assistant"), since=AT + day), [1]),
            )
            for where, expected in cases:

                def newest(tx: Tx, where: MessageFilter = where) -> list[int]:
                    return [message.seq for message in tx.messages.newest(agent.id, where=where, limit=9)]

                assert await store.read(match_messages, agent.id, "walrus", where=where) == expected, where
                assert await store.read(newest) == expected[::-1], where

    async def test_times_are_compared_as_moments(self) -> None:
        """A time with another offset is the same moment: filters and pages don't depend on how it was written."""
        from datetime import timezone  # the offset below is the point

        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            tokyo = AT.astimezone(timezone(timedelta(hours=9)))
            (message,) = await store.write(lambda tx: self.say(tx, agent.id, self.draft("walrus", occurred_at=tokyo)))

            assert (await store.read(lambda tx: tx.messages.get(message.id))).occurred_at == AT
            for where, is_found in (
                (MessageFilter(until=AT), True),
                (MessageFilter(since=AT), True),
                (MessageFilter(until=AT - timedelta(hours=1)), False),
                (MessageFilter(since=AT + timedelta(hours=1)), False),
                (MessageFilter(since=tokyo, until=tokyo), True),
            ):
                assert bool(await store.read(match_messages, agent.id, "walrus", where=where)) == is_found, where

    async def test_search_is_bounded_and_takes_the_rarest_words_first(self) -> None:
        """At most `limit` candidates: what holds more of the query and its rarer words, then what is newer; and how
        many rows hold each clause. A query without words finds nothing."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(
                self.say, agent.id, "a walrus in the zoo", *(f"walrus number {index}" for index in range(9))
            )

            def match(tx: Tx, query: Query, limit: int) -> Matches:
                return tx.messages.match(agent.id, query, where=MessageFilter(), limit=limit)

            found = await store.read(match, parse_query("walrus zoo"), 4)
            assert list(found.seqs) == [0, 9, 8, 7]
            assert list(found.frequency) == [10, 1]
            assert list((await store.read(match, parse_query("walrus"), 99)).seqs) == list(range(9, -1, -1))
            assert list((await store.read(match, Query(()), 9)).seqs) == []

    async def test_a_clause_may_ask_for_any_of_its_words(self) -> None:
        """Whole words, or as the beginning of one; each row counts once, however many of them it holds."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            texts = ("a walrus", "a penguin and a walrus", "a zebra", "a penguin", "two zebras walk", "nothing")
            await store.write(self.say, agent.id, *texts)

            def match(tx: Tx, *clauses: Clause) -> Matches:
                return tx.messages.match(agent.id, Query(clauses), where=MessageFilter(), limit=9)

            either = Clause(("walrus", "penguin"), either=True)
            found = await store.read(match, either)
            assert (sorted(found.seqs), list(found.frequency)) == ([0, 1, 3], [3])
            assert not (await store.read(match, Clause(("walrus", "penguin")))).seqs
            both = await store.read(match, either, Clause(("walk",), prefix=True))
            assert (sorted(both.seqs), list(both.frequency)) == ([0, 1, 3, 4], [3, 1])

    async def test_search_among_very_many_finds_what_is_old(self) -> None:
        """Where thousands hold each word, one that holds both is found however old it is, and one with a rare word."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(self.say, agent.id, "the walrus met a penguin", "a zebra and a walrus")
            for _ in range(3):
                await store.write(self.say, agent.id, *(["one more walrus", "one more penguin"] * 400))

            def match(tx: Tx, text: str) -> Matches:
                return tx.messages.match(agent.id, parse_query(text), where=MessageFilter(), limit=5)

            both = await store.read(match, "walrus penguin")
            assert both.seqs[0] == 0
            assert all(1000 <= count <= 1500 for count in both.frequency)
            assert (await store.read(match, "walrus zebra")).seqs[0] == 1

    async def test_search_does_not_find_earlier_searches(self) -> None:
        """The results of search tools only repeat what is stored: they stay in the log, outside the index."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            drafts = [
                self.draft(ToolResult("c1", "conversation_search", "walrus"), role="tool"),
                self.draft(ToolResult("c2", "archival_memory_search", "walrus"), role="tool"),
                self.draft(ToolResult("c3", "web_search", "walrus"), role="tool"),
            ]
            await store.write(lambda tx: self.say(tx, agent.id, *drafts))

            assert await store.read(match_messages, agent.id, "walrus") == [2]
            assert await store.read(lambda tx: tx.messages.count(agent.id)) == 3

    async def test_messages_come_in_the_order_of_the_numbers_asked_for(self) -> None:
        """`by_seqs` keeps the order given and leaves out what is not there."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            await store.write(self.say, agent.id, *"abc")

            def look(tx: Tx) -> tuple[list[str], list[str]]:
                ordered = tx.messages.list_by_seqs(agent.id, [2, 99, 0])
                return [message.text for message in ordered], [m.text for m in tx.messages.list_by_seqs(agent.id, [])]

            assert await store.read(look) == (["c", "a"], [])

    async def test_an_unknown_agent_takes_no_messages(self) -> None:
        """Appending to an agent that is not there is refused."""
        async with self.open_store() as store:
            with raises(NotFound):
                await store.write(self.say, AgentId(self.ids.new("agent")), "hello")

    async def test_what_is_known_of_messages_is_read_without_the_rest(self) -> None:
        """Ids that are taken, the next number, what was said when and how long it is, texts by their numbers."""
        async with self.open_store() as store, self.open_store(org_id=OrgId("org-other")) as other:
            agent = await store.write(self.add_agent)

            def fill(tx: Tx) -> list[Message]:
                note = self.draft("a note", role="system", kind="memory_delta")
                asked = self.say(tx, agent.id, "Who is it?", note, self.draft(AWKWARD[5], role="assistant"))
                return [*asked, *self.say(tx, agent.id, "gone", at=LATER)]

            asked, _note, told, gone = await store.write(fill)
            await store.write(lambda tx: tx.messages.revise(gone.id, None, author=ADA, at=LATER))
            absent = MessageId(self.ids.new("message"))
            ids = [asked.id, gone.id, absent]
            assert await store.read(lambda tx: tx.messages.find_existing(ids)) == {asked.id, gone.id}
            assert await other.read(lambda tx: tx.messages.find_existing(ids)) == set()
            assert await store.read(lambda tx: tx.messages.next_seq(agent.id)) == gone.seq + 1
            with raises(NotFound):
                await other.read(lambda tx: tx.messages.next_seq(agent.id))
            seqs = [asked.seq, told.seq, gone.seq, gone.seq + 1]
            assert await store.read(lambda tx: tx.messages.texts(agent.id, seqs)) == {
                asked.seq: "Who is it?",
                told.seq: AWKWARD[5],
            }
            (part,) = await store.read(lambda tx: tx.turns.list(agent.id, from_seq=0, before_seq=gone.seq + 1))
            assert part.names == ()
            assert list(struct.iter_unpack(TURN_FORMAT, part.rows)) == [
                (asked.seq, AT.timestamp(), 0, len("Who is it?"), -1, 0, True),
                (told.seq, AT.timestamp(), 0, len(AWKWARD[5]), -1, 1, False),
            ]
            (part,) = await store.read(lambda tx: tx.turns.list(agent.id, from_seq=told.seq, before_seq=gone.seq))
            assert [row[0] for row in struct.iter_unpack(TURN_FORMAT, part.rows)] == [told.seq]

    async def test_what_a_first_search_reads_of_a_long_history_is_stored(self) -> None:
        """In parts, with the messages that fill them; what an older version did not store is stored later."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)

            def add(tx: Tx, count: int) -> int:
                drafts = [replace(self.draft(f"Is it {number}?"), name=f"Ada {number % 2}") for number in range(count)]
                return tx.messages.append((agent.id, 0), drafts, [1] * count, at=AT)[-1].seq + 1

            def read(tx: Tx) -> tuple[Sequence[TurnPart], list[str]]:
                explained: Any = Explained(tx._db)
                parts = Turns(explained, tx.org_id).list(agent.id, from_seq=0, before_seq=next_seq)
                return parts, explained.columns_of("messages")

            await store.write(add, PART + 5)
            next_seq = await store.write(add, PART)
            stored, readings = await store.read(read)
            assert [len(part.rows) // struct.calcsize(TURN_FORMAT) for part in stored] == [PART, PART, next_seq % PART]
            assert {frozenset(part.names) for part in stored} == {frozenset(("Ada 0", "Ada 1"))}
            assert len(readings) == 1, "those behind the last part"
            assert "agent_id" in readings[0] and "seq" in readings[0]

            await store.write(lambda tx: tx._db.run("DELETE FROM turns", {}))
            assert [*(await store.read(read))[0]] == [*stored]
            next_seq = await store.write(add, PART)
            assert [*(await store.read(read))[0]][:2] == [*stored[:2]]
            kept = await store.read(lambda tx: tx._db.rows("SELECT part FROM turns ORDER BY part", {}))
            assert [row[0] for row in kept] == [0, 1, 2]

            await store.write(lambda tx: redact(tx, "messages", agent.id, Redactor("Ada 1"), limit=9))
            names = await store.read(lambda tx: tx._db.rows("SELECT part, names FROM turns ORDER BY part", {}))
            assert [row[0] for row in names] == [1, 2], "a part does not keep the name of a speaker that was erased"
