"""A text is found in every table that holds it, and taken out of it; corrections are kept for a while."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from perdure.core.agents import Agent
from perdure.core.errors import NotFound
from perdure.core.events import Delta, DeltaStreamed, RunQueued
from perdure.core.forgetting.corrections import Correction, CorrectionItem, Key
from perdure.core.forgetting.redaction import REDACTED, Redactor
from perdure.core.ids import AgentId, ConversationId, FileId, StepId
from perdure.core.messages import Reasoning, Text, ToolCall, ToolResult
from perdure.core.models import Exchange
from perdure.core.runs import Prefix, Recipe, Usage
from perdure.features.files.file_tables import Files
from perdure.features.files.folder_tables import Folders
from perdure.features.files.values import FilePart
from perdure.features.origins.mentions import TEXT_TABLES, TextMentions
from perdure.features.origins.tables import Erasures
from perdure.features.origins.values import MatchedRowPage
from perdure.storage.tx import Tx
from tests.contracts.base import ADA, AT, LATER, UNTIL, Contract, match_messages, raises
from tests.contracts.nodes import node_of
from tests.contracts.organisations import system_message_of
from tests.contracts.text_columns import NO_TEXTS, columns_of
from tests.contracts.upkeep import faults_of
from tests.contracts.vectors import MODEL

SECRET = 'the "blue" walrus\nof Häfen 7Q4'
REDACTOR = Redactor(SECRET)


class ForgettingContract(Contract):
    def fill_tables(self, tx: Tx) -> Agent:
        """An agent with the text in each of the tables that hold texts of agents."""
        with tx.vectors.use_embedding(MODEL):
            agent = self.add_agent(tx)
        call = ToolCall("call", "look", f'{{"q": {_json(SECRET)}}}')
        said = self.draft(Reasoning(f"hm {SECRET}", signature="sig"), call, Text(f"well {SECRET}."), role="assistant")
        result = self.draft(ToolResult("call", "look", f"[{_json(_json(SECRET))}]"), role="tool")
        self.say(tx, agent.id, said, result, "kept", f"{'long ' * 300}{SECRET}")
        revised = self.say(tx, agent.id, "first")[0]
        tx.messages.revise(revised.id, [Text(f"now {SECRET}")], author=ADA, at=AT)
        run = self.add_run(tx, agent.id)
        tx.runs.put_client_tools(run, "digest", [{"name": SECRET}])
        recipe = Recipe(prefix_seq=0, upto_message_seq=0, tail=SECRET, settings_revision=0)
        step = tx.steps.add(run, StepId(self.ids.new("step")), index=0, model="m", recipe=recipe, at=AT)
        tx.steps.put_exchange(step, Exchange(request={"a": [SECRET]}, response={}))
        tx.steps.end(step, status="success", at=AT, usage=Usage())
        delta = DeltaStreamed(Delta(StepId("step-1"), said.id, "text", "the blue"))
        tx.events.add(run.key, [delta, delta, RunQueued(run.id)], at=AT)
        first = Prefix(
            agent_id=agent.id, seq=0, conversation_seq=0, reason="first", system=SECRET, tools=(), created_at=AT
        )
        tx.prefixes.add(first)
        tx.system_messages.put(system_message_of(tx.conversations.get_by_seq(agent.id, 0), SECRET))
        node = tx.nodes.add(node_of(agent.id))
        tx.nodes.put_text(node, f"kept.\n{SECRET}\nof Häfen 7Q4 too.")
        correction = tx.corrections.add(agent.id, "passage", SECRET, at=AT)
        tx.corrections.add_items(correction, [CorrectionItem(kind="passage", id="p", before=_json(SECRET))])
        return agent

    async def test_every_column_is_erased_or_holds_no_text_of_users(self) -> None:
        """A new column with texts is named here, until erasing knows it or a reason stands in `NO_TEXTS`."""
        async with self.open_store() as store:

            def unknown(tx: Tx) -> set[str]:
                return columns_of(tx.agents._db) - erased - reasons.keys()

            def add_column(tx: Tx) -> None:
                tx.agents._db.run("ALTER TABLE agents ADD COLUMN note TEXT", {})

            def drop_column(tx: Tx) -> None:
                tx.agents._db.run("ALTER TABLE agents DROP COLUMN note", {})

            erased = {f"{table}.{column}" for table, what in TEXT_TABLES.items() for column in what.texts}
            reasons = {column: reason for reason, columns in NO_TEXTS.items() for column in columns.split()}
            columns = await store.read(lambda tx: columns_of(tx.agents._db))
            fts = {column for column in reasons if column.partition(".")[0].endswith("_words")}

            helps = "name each column in `text_tables` of its feature or TEXT_TABLES, or in NO_TEXTS of text_columns.py"
            assert await store.read(unknown) == set(), helps
            assert erased <= columns
            assert reasons.keys() - fts <= columns
            assert not erased & reasons.keys()
            await store.write(add_column)
            try:
                assert await store.read(unknown) == {"agents.note"}
            finally:
                await store.write(drop_column)

    async def test_a_text_is_found_and_taken_out_of_every_table(self) -> None:
        """As it is, and inside JSON of any depth; what is derived from a message follows, and nothing is damaged."""
        async with self.open_store() as store:
            agent = await store.write(self.fill_tables)
            of_agents = [table for table, what in TEXT_TABLES.items() if what.owners == "agents"]

            def scan(tx: Tx) -> dict[str, int]:
                pages = {table: tx.of(TextMentions).scan(table, agent.id, REDACTOR) for table in of_agents}
                return {table: len(page.found) for table, page in pages.items() if page.found}

            before = await store.read(scan)
            for table in of_agents:
                await store.write(redact, table, agent.id)

            assert before == {
                **{"messages": 3, "message_revisions": 1, "summary_nodes": 1, "client_tools": 1, "steps": 1},
                **{"step_exchanges": 1, "prefixes": 1, "system_messages": 1, "corrections": 1, "correction_items": 1},
            }
            assert await store.read(scan) == {}
            messages = await store.read(lambda tx: tx.messages.list(agent.id))
            assert [part.type for part in messages[0].parts] == ["reasoning", "tool_call", "text"]
            assert messages[0].parts[0] == Reasoning(f"hm {REDACTED}")
            assert messages[0].text == f"well {REDACTED}."
            assert [messages[place].text for place in (2, 4)] == ["kept", f"now {REDACTED}"]
            assert await store.read(match_messages, agent.id, "walrus") == []
            assert sorted(await store.read(match_messages, agent.id, "kept")) == [2]
            assert [one.kind for one in await store.read(faults_of)] == []
            nodes = await store.read(lambda tx: tx.nodes.list(agent.id, 0))
            assert nodes[0].text == f"kept.\n{REDACTED}\n{REDACTED} too."

    async def test_a_scan_goes_on_behind_a_page(self) -> None:
        """Each page begins behind the last; rows without the text are not returned."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> Agent:
                agent = self.add_agent(tx)
                self.say(tx, agent.id, *(SECRET if number % 2 else "other" for number in range(7)))
                return agent

            agent = await store.write(fill)
            found: list[Key] = []
            after: Key | None = None
            while True:
                page = await store.read(_scan, agent.id, after)
                found += [one.key for one in page.found]
                after = page.after
                if after is None:
                    break

            assert found == [(1,), (3,), (5,)]

    async def test_previews_of_answers_are_removed_with_the_text(self) -> None:
        """They hold it in pieces; the newest event stays."""
        async with self.open_store() as store:
            agent = await store.write(self.fill_tables)
            run = (await store.read(lambda tx: tx.runs.list_oldest()))[0]

            await store.write(lambda tx: tx.of(TextMentions).drop_deltas(agent.id))

            left = await store.read(lambda tx: tx.events.list(run.key))
            assert [one.event.type for one in left] == ["run.queued"]

    async def test_what_an_agent_has_and_shares(self) -> None:
        """Its blocks, those of its conversations, its archives and its folders' files; and who else has them."""
        async with self.open_store() as store:

            def fill(tx: Tx) -> tuple[Agent, Agent, list[tuple[str, str]]]:
                agent, other = self.add_agent(tx), self.add_agent(tx, "bob")
                block, own = self.add_block(tx, agent_id=agent.id), self.add_block(tx, "own")
                tx.blocks.attach(other.id, block.id)
                self.add_block(tx, "nobody's")
                tx.conversations.add(agent.id, ConversationId(self.ids.new("conversation")), at=AT)
                tx.blocks.isolate(agent.id, 1, "own", own.id)
                archive, folder = self.add_archive(tx, agent_id=agent.id), self.add_folder(tx)
                file = self.add_file(tx, folder.id)
                for one in (agent, other):
                    tx.of(Folders).attach(one.id, folder.id, opens=False)
                owned = [("archives", archive.id), ("archives", folder.archive_id), ("blocks", block.id)]
                assert tx.of(Files).has_waiting(folder.archive_id)
                assert not tx.of(Files).has_waiting(archive.id)
                return agent, other, [*owned, ("blocks", own.id), ("files", file.id)]

            agent, other, owned = await store.write(fill)

            assert sorted(await store.read(lambda tx: tx.owners.list(agent.id))) == sorted(owned)
            sharing = {table: await store.read(_list_agents, table, id_) for table, id_ in owned}
            assert sharing["files"] == [agent.id, other.id]
            named = {table: await store.read(_name_of, table, id_) for table, id_ in owned if table != "blocks"}
            assert named == {"archives": "docs", "files": "plan.md"}
            assert (await store.read(lambda tx: tx.owners.list_agents("blocks", owned[2][1]))) == [agent.id, other.id]
            assert (await store.read(lambda tx: tx.owners.list_agents("archives", owned[0][1]))) == [agent.id]

    async def test_a_text_is_masked_across_the_parts_of_a_file(self) -> None:
        """Their lengths and lines stay, and the digest of the old bytes is forgotten."""
        async with self.open_store() as store:
            texts = ["one the blue ", "walrus\nof the sea\n", "two the blue walrus\nof the sea\n", "three\n"]

            def fill(tx: Tx) -> FileId:
                file = self.add_file(tx, self.add_folder(tx).id, digest="digest")
                parts = [FilePart(seq=at, first_line=at + 1, first_char=0, text=text) for at, text in enumerate(texts)]
                tx.of(Files).put_parts(file.id, parts)
                return file.id

            file_id = await store.write(fill)
            redactor = Redactor("the blue walrus of")
            after: int | None = -1
            while after is not None:
                after = await store.write(_mask, file_id, redactor, after)

            parts = await store.read(lambda tx: tx.of(Files).parts(file_id, limit=9))
            blue = "█" * 9
            masked = [f"one {blue}", "██████\n██ the sea\n", f"two {blue}██████\n██ the sea\n", "three\n"]
            assert [part.text for part in parts] == masked
            assert (await store.read(lambda tx: tx.of(Files).get(file_id))).digest == ""
            await store.write(lambda tx: tx.of(Files).put_part(file_id, 3, "again\n"))
            assert await store.read(lambda tx: tx.of(Files).get_part(file_id, 3)) == "again\n"

    def correct(self, tx: Tx, agent_id: AgentId) -> Correction:
        return tx.corrections.add(agent_id, "block", "x", at=AT)

    async def test_corrections_and_their_items(self) -> None:
        """Numbered from 1, undone from the last item on; the newest hundred are kept."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            items = [CorrectionItem(kind="block", id=f"b{number}", before="0", after=number) for number in range(3)]

            def fill(tx: Tx) -> None:
                correction = tx.corrections.add_items(tx.corrections.add(agent.id, "forget", "x\x00", at=AT), items[:2])
                assert tx.corrections.add_items(correction, items[2:]).items == 3

            await store.write(fill)
            correction = await store.read(lambda tx: tx.corrections.get(agent.id, 1))
            assert (correction.text, correction.items, correction.undone_at) == ("x\x00", 3, None)
            assert await store.read(lambda tx: tx.corrections.items(correction, limit=2)) == items[:0:-1]
            of = await store.read(lambda tx: tx.corrections.list_of(agent.id, items[0].kind, items[0].id))
            assert of[0] == (correction, items[0])
            for kind, id_, found in (("block", "b0", [correction]), ("block", "b9", []), ("fact", "b0", [])):
                assert (
                    await store.read(lambda tx, *one: tx.corrections.forgotten_in(*one), [agent.id], kind, [id_])
                    == found
                )
            await store.write(lambda tx: tx.corrections.drop_items(correction, 2))
            assert await store.read(lambda tx: tx.corrections.items(correction)) == items[:1]
            ended = await store.write(lambda tx: tx.corrections.end(correction, at=LATER))
            assert await store.read(lambda tx: tx.corrections.list(agent.id)) == [ended]
            assert await store.read(lambda tx: tx.corrections.list(agent.id, undone=False)) == []
            for _ in range(101):
                await store.write(self.correct, agent.id)
            assert len(await store.read(lambda tx: tx.corrections.list(agent.id, limit=999))) == 100
            with raises(NotFound):
                await store.read(lambda tx: tx.corrections.get(agent.id, 2))

    async def test_what_was_forgotten_is_known_as_long_as_it_is(self) -> None:
        """The whole text, also when it can't be undone any more; of lists it is the beginning."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            texts = ("undone", "long " * 100, "x")
            await store.write(lambda tx: [tx.corrections.add(agent.id, "forget", text, at=AT) for text in texts])
            await store.write(lambda tx: tx.corrections.end(tx.corrections.get(agent.id, 1), at=LATER))
            listed = await store.read(lambda tx: tx.corrections.list(agent.id))
            assert [(one.number, len(one.text)) for one in listed] == [(3, 1), (2, 120), (1, 6)]
            assert await store.read(lambda tx: tx.corrections.list(agent.id, undone=False)) == []
            for _ in range(101):
                await store.write(self.correct, agent.id)

            forgotten = await store.read(lambda tx: tx.corrections.forgotten(agent.id))
            assert [one.text for one in forgotten] == ["long " * 100, "x"]
            with raises(NotFound):
                await store.read(lambda tx: tx.corrections.get(agent.id, 3))

    async def test_a_text_is_found_in_letters_of_another_width(self) -> None:
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            texts = (
                "the ｂＬue　walrus",
                "the ＢＬＵＥ walrus",
                _json("ｂｌｕｅ walrus"),
                "blue walrus",
                "blue, a walrus",
            )
            await store.write(lambda tx: self.say(tx, agent.id, *texts))
            page = await store.read(
                lambda tx: tx.of(TextMentions).scan("messages", agent.id, Redactor("Blue Ｗａlrus"))
            )

            assert [row.key for row in page.found] == [(0,), (1,), (2,), (3,)]

    async def test_an_erasure_is_found_until_it_has_ended(self) -> None:
        """With its progress; and that an agent's history was changed by one."""
        async with self.open_store() as store:
            agent, other = await store.write(self.add_agent), await store.write(self.add_agent)
            targets = [("messages", agent.id), ("events", other.id)]
            erasure = await store.write(lambda tx: tx.of(Erasures).add(agent.id, SECRET, targets, at=AT, owner="me"))
            step = replace(erasure, target=1, after=(3, "x"), changed=2, counts={"message": 2}, updated_at=UNTIL)
            await store.write(lambda tx: tx.of(Erasures).put(step))

            assert await store.read(lambda tx: tx.of(Erasures).get(agent.id, 1)) == replace(
                step, targets=tuple(targets)
            )
            assert [one.owner for one in await store.read(lambda tx: tx.of(Erasures).list_unended())] == ["me"]
            await store.write(lambda tx: tx.of(Erasures).release("me"))
            assert [one.owner for one in await store.read(lambda tx: tx.of(Erasures).list_unended(agent.id))] == [""]
            assert await store.read(lambda tx: tx.of(Erasures).list_unended(other.id)) == []
            for one in (agent, other):
                assert await store.read(_has_erased, one.id, UNTIL)
                assert not await store.read(_has_erased, one.id, LATER)
            await store.write(lambda tx: tx.of(Erasures).put(replace(step, text="", ended_at=LATER)))
            assert await store.read(lambda tx: tx.of(Erasures).list_unended()) == []

    async def test_removed_words_and_vectors_leave_the_database(self) -> None:
        """The index is merged in steps, the cache of vectors emptied, and the database written anew."""
        async with self.open_store() as store:
            agent = await store.write(self.fill_tables)
            await store.write(lambda tx: tx.vectors.store_cache(MODEL, [(b"12345678", b"vector", b"words")]))
            await store.write(lambda tx: tx.of(TextMentions).revise_settings(agent.id))
            begin = True
            while await store.write(_merge, begin):
                begin = False
            while await store.write(lambda tx: tx.upkeep.drop_vector_cache(limit=1)):
                pass
            seen: list[tuple[int, int]] = []
            await store.scrub(lambda done, total: seen.append((done, total)))

            assert await store.read(lambda tx: tx.vectors.load_cache(MODEL, [b"12345678"])) == {}
            assert sorted(await store.read(match_messages, agent.id, "kept")) == [2]
            assert await store.read(lambda tx: tx.of(TextMentions).find_unended_run(agent.id)) is not None
            assert (await store.read(lambda tx: tx.agents.get(agent.id))).settings_revision >= 1


def _json(text: str) -> str:
    return json.dumps(text)


def redact(tx: Tx, table: str, owner_id: str, redactor: Redactor = REDACTOR, *, limit: int = 500) -> MatchedRowPage:
    """Take a text out of the first rows of an owner, as erasing does; return those."""
    page = tx.of(TextMentions).scan(table, owner_id, redactor, limit=limit)
    tx.of(TextMentions).redact(table, owner_id, redactor, page.found)
    return page


def _scan(tx: Tx, owner_id: str, after: Key | None) -> MatchedRowPage:
    return tx.of(TextMentions).scan("messages", owner_id, REDACTOR, after=after, limit=3)


def _name_of(tx: Tx, table: str, owner_id: str) -> str:
    return tx.of(TextMentions).name_of(table, owner_id)


def _list_agents(tx: Tx, table: str, owner_id: str) -> Sequence[AgentId]:
    return tx.owners.list_agents(table, owner_id)


def _mask(tx: Tx, file_id: FileId, redactor: Redactor, after: int) -> int | None:
    return tx.of(Files).mask_parts(file_id, redactor, after=after, limit=2)


def _has_erased(tx: Tx, agent_id: AgentId, since: datetime) -> bool:
    return tx.of(Erasures).has_erased(agent_id, since=since)


def _merge(tx: Tx, begin: bool) -> bool:
    return tx.upkeep.merge_words(begin=begin)
