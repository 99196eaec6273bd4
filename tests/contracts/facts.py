"""Graphs, entities, facts with two time axes, and the episodes that support them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from perdure.core.agents import Agent
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.forgetting.redaction import Redactor
from perdure.core.ids import AgentId, EntityId, FactId, GraphId
from perdure.features.facts.tables import Entities, Episodes, Facts, Graphs
from perdure.features.facts.values.facts import Community, FactFilter, FactRule, Graph, GraphCounts
from perdure.storage.database.row_format import Row
from perdure.storage.tx import Tx
from tests.contracts.base import AT, AWKWARD, LATER, Contract, match_passages, raises
from tests.contracts.forgetting import redact

DAY = timedelta(days=1)


class FactContract(Contract):
    def add_world(self, tx: Tx) -> Graph:
        """A graph with three entities."""
        graph = self.add_graph(tx)
        self.add_entities(tx, graph.id, "Ada", "Turin", "Oslo")
        return graph

    async def test_a_graph_is_given_to_agents_and_changed(self) -> None:
        """An agent has one; several may have the same. Each change counts, and what extraction drops adds up."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                one, other = self.add_agent(tx, "one"), self.add_agent(tx, "two")
                graph, second = self.add_graph(tx, "first"), self.add_graph(tx, "second")
                tx.of(Graphs).attach(one.id, second.id)
                tx.of(Graphs).attach(one.id, graph.id)
                tx.of(Graphs).attach(other.id, graph.id)

                assert (
                    tx.of(Graphs).get(graph.id)
                    == tx.of(Graphs).find_by_agent(one.id)
                    == tx.of(Graphs).find_by_agent(other.id)
                )
                assert tx.of(Graphs).list_agents(graph.id) == sorted([one.id, other.id])
                assert tx.of(Graphs).list_agents(second.id) == []
                assert [tx.of(Graphs).list(), tx.of(Graphs).list(limit=1)] == [[graph, second], [graph]]
                assert tx.of(Graphs).list(after=graph.number) == [second]
                assert [tx.of(Graphs).find_by_name(name) for name in ("second", "third")] == [second, None]
                archives = (second.fact_archive_id, second.entity_archive_id, self.add_archive(tx).id)
                assert [tx.of(Graphs).find_by_archive(one) for one in archives] == [second, second, None]

                tx.of(Graphs).put(replace(graph, name="renamed", settings={"paused": True}, updated_at=LATER))
                tx.of(Graphs).count_dropped(graph.id, {})
                tx.of(Graphs).count_dropped(graph.id, {"pronoun": 2})
                tx.of(Graphs).count_dropped(graph.id, {"pronoun": 1, "no name": 4})
                after = tx.of(Graphs).get(graph.id)
                assert (after.name, after.settings, after.updated_at) == ("renamed", {"paused": True}, LATER)
                assert after.version > graph.version
                assert tx.of(Graphs).counts(graph.id) == GraphCounts(dropped={"no name": 4, "pronoun": 3})
                for _ in range(2):
                    tx.of(Graphs).count_calls(graph.id, calls=1, input_tokens=30, output_tokens=4)
                counts = tx.of(Graphs).counts(graph.id)
                assert (counts.calls, counts.input_tokens, counts.output_tokens) == (2, 60, 8)
                with raises(NotFound):
                    tx.of(Graphs).count_calls(GraphId("graph-none"), calls=1, input_tokens=0, output_tokens=0)
                with raises(NotFound):
                    tx.of(Graphs).put(replace(graph, id=GraphId("graph-none")))
                with raises(NotFound):
                    tx.of(Graphs).get(GraphId(AWKWARD[0]))
                with raises(NotFound):
                    tx.of(Graphs).attach(AgentId("agent-none"), graph.id)

            await store.write(unit)

    async def test_numbers_are_taken_in_order(self) -> None:
        """Of each kind by itself. New facts renew the caches of searches in the archive of their texts."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_graph(tx)
                before = tx.archives.get(graph.fact_archive_id).version
                taken = [tx.of(Graphs).take_numbers(graph.id, "fact", count) for count in (2, 0, 1)]
                version = tx.of(Graphs).get(graph.id).version
                assert taken == [(1, version - 2), (3, version - 1), (3, version)]
                assert tx.of(Graphs).take_numbers(graph.id, "entity", 1) == (1, version + 1)
                assert tx.archives.get(graph.fact_archive_id).version == before + 3
                with raises(NotFound):
                    tx.of(Graphs).take_numbers(GraphId("graph-none"), "fact", 1)

            await store.write(unit)

    async def test_versions_that_people_wrote_are_listed(self) -> None:
        """The newest first, above a number; a text that only names a person is none of theirs."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                assert tx.of(Graphs).newest_of_people(graph.id) == 0
                origins = [{"type": "person"}, {"type": "extraction"}, {"type": "tool", "by": "person"}]
                new = [self.new_fact(graph.id, origin=origin) for origin in (*origins, origins[0])]
                first, _, _, last = tx.of(Facts).add(graph, new)
                assert tx.of(Facts).list_of_people(graph.id, after=0, limit=9) == [last, first]
                assert tx.of(Facts).list_of_people(graph.id, after=first.seq, limit=9) == [last]
                assert tx.of(Facts).list_of_people(graph.id, after=0, limit=1) == [last]
                named = {seq for fact in (first, last) for seq in (fact.subject, fact.object)}
                assert tx.of(Entities).of_facts(graph.id, [first, last]).keys() == named
                assert tx.of(Graphs).newest_of_people(graph.id) == last.seq

            await store.write(unit)

    async def test_facts_among_some_entities_are_listed(self) -> None:
        """Both ends are among them; the newest first, and only what is known."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                new = [self.new_fact(graph.id), self.new_fact(graph.id), self.new_fact(graph.id, state="proposed")]
                one, two, _ = tx.of(Facts).add(graph, new)
                ends = [one.subject, one.object]
                assert tx.of(Facts).list_among(graph.id, ends, limit=9)[:2] == [two, one]
                assert tx.of(Facts).list_among(graph.id, ends, limit=1) == [two]
                assert tx.of(Facts).list_among(graph.id, [one.subject], limit=9) == []
                assert tx.of(Facts).list_among(graph.id, [], limit=9) == []

            await store.write(unit)

    async def test_rules_are_numbered_and_removed(self) -> None:
        """A number is not used again."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_graph(tx)
                new = FactRule(graph_id=graph.id, text="her salary", created_at=AT)
                one = tx.of(Graphs).add_rule(new)
                other = tx.of(Graphs).add_rule(replace(new, text="", entity=1, relation="EARNS"))
                assert tx.of(Graphs).list_rules(graph.id) == [one, other]
                assert [tx.of(Graphs).delete_rule(graph.id, one.seq) for _ in range(2)] == [True, False]
                assert tx.of(Graphs).list_rules(graph.id) == [other]
                assert tx.of(Graphs).add_rule(new).seq == 3

            await store.write(unit)

    async def test_entities_are_found_by_their_names(self) -> None:
        """By name and alias, in any case and spacing; a changed entity only by the names that it has now."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_graph(tx)
                assert tx.of(Entities).add([]) == ()
                (ada,) = self.add_entities(tx, graph.id, "Ada  Lovelace", aliases=("Ada", "the Countess"))
                twin, _ = self.add_entities(tx, graph.id, "ADA", "Straße")
                names = ["ada", "ada lovelace", "STRASSE", "Bob"]
                found = tx.of(Entities).find_by_names(graph.id, names)
                assert found == {"ada": [1, 2], "ada lovelace": [1], "STRASSE": [3], "Bob": []}

                changed = replace(ada, name="Ada King", aliases=(), summary="s", attributes={"a": 1}, updated_at=LATER)
                tx.of(Entities).put(replace(changed, graph_id=GraphId("graph-none"), seq=7))
                assert tx.of(Entities).get(ada.id) == changed
                assert tx.of(Entities).find_by_names(graph.id, ["Ada", "Ada King"]) == {"Ada": [2], "Ada King": [1]}
                assert tx.of(Entities).find_by_names(graph.id, []) == {}
                assert tx.of(Entities).list(graph.id, above=1, limit=1) == [twin]
                assert [one.seq for one in tx.of(Entities).list_by_seqs(graph.id, [3, 9, 1, 3])] == [3, 1]
                with raises(NotFound):
                    tx.of(Entities).get(EntityId("entity-none"))

            await store.write(unit)

    async def test_a_merged_entity_leads_to_the_other(self) -> None:
        """It is in no list and has no name; whoever asks for it by number gets the last that it was merged into."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_graph(tx)
                one, two, three = self.add_entities(tx, graph.id, "bob", "Ada", "Eve")
                assert tx.of(Entities).list_current(graph.id, [1, 9]) == {1: one}
                tx.of(Entities).put(replace(one, merged_into=2))
                tx.of(Entities).put(replace(two, merged_into=3))
                assert tx.of(Entities).list_current(graph.id, [2, 1, 3]) == {2: three, 1: three, 3: three}
                assert tx.of(Entities).list(graph.id) == [three]
                assert [entity.seq for entity in tx.of(Entities).list(graph.id, merged=True)] == [1, 2, 3]
                assert tx.of(Entities).find_by_names(graph.id, ["bob", "Eve"]) == {"bob": [], "Eve": [3]}
                tx.of(Entities).put(one)
                assert tx.of(Entities).find_by_names(graph.id, ["bob"]) == {"bob": [1]}
                assert tx.of(Entities).list_sorted(graph.id, "name", offset=0, limit=9) == [one, three]
                assert tx.of(Entities).list_sorted(graph.id, "-name", offset=1, limit=9) == [one]

            await store.write(unit)

    async def test_awkward_names_and_more_than_a_statement_takes(self) -> None:
        """Every text comes back as it was and leads to its entity, also beside thousands of other names."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_graph(tx)
                names = [f"{text}x" for text in AWKWARD]
                self.add_entities(tx, graph.id, *names)
                tx.of(Episodes).add([self.new_episode(graph.id, name) for name in names])
                many = [f"name {number}" for number in range(2_500)]

                assert [one.name for one in tx.of(Entities).list(graph.id)] == names
                found = tx.of(Entities).find_by_names(graph.id, many + names)
                assert [found[name] for name in names] == [[number] for number in range(1, len(names) + 1)]
                assert [one.ref for one in tx.of(Episodes).list_by_refs(graph.id, many + names)] == names
                assert tx.of(Facts).list_by_ids([FactId(f"fact-{number}") for number in range(2_500)]) == []

            await store.write(unit)

    async def test_communities_have_members(self) -> None:
        """One that has none is removed."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                tx.of(Entities).set_community(graph.id, 1, 1)
                tx.of(Entities).set_community(graph.id, 3, 1)
                tx.of(Entities).set_community(graph.id, 2, 2)
                tx.of(Entities).set_community(graph.id, 2, None)
                assert [one.name for one in tx.of(Entities).list_members(graph.id, 1)] == ["Ada", "Oslo"]
                assert tx.of(Entities).list_members(graph.id, 2) == []
                assert tx.of(Entities).communities_of(graph.id, [1, 2, 9]) == {1: 1, 2: None}

                one = Community(graph_id=graph.id, seq=1, name="Ada", size=2, updated_at=AT)
                other = replace(one, seq=3, summary_due=False)
                tx.of(Entities).put_community(replace(one, size=5))
                tx.of(Entities).put_community(one)
                tx.of(Entities).put_community(other)
                assert tx.of(Entities).find_community(graph.id, 1) == one
                assert tx.of(Entities).find_community(graph.id, 2) is None
                listed = [tx.of(Entities).list_communities(graph.id, due=due) for due in (None, True, False)]
                assert listed == [[one, other], [one], [other]]
                assert tx.of(Entities).list_communities(graph.id, after=1) == [other]
                tx.of(Entities).put_community(replace(one, size=0))
                assert tx.of(Entities).list_communities(graph.id) == [other]
                with raises(NotFound):
                    tx.of(Entities).put_community(replace(one, graph_id=GraphId("graph-none")))

            await store.write(unit)

    async def test_a_fact_has_versions(self) -> None:
        """The newest is the fact; versions of one text share a passage, and count on their entities once."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                new = self.new_fact(graph.id, valid_at=AT, scope={"user_id": "ann"}, origin={"type": "person"})
                (fact,) = tx.of(Facts).add(graph, [replace(new, rating=0.9, type="HOME")])
                assert tx.of(Facts).add(graph, []) == ()
                assert (fact.seq, fact.first_seq, fact.text_seq) == (1, 1, 0)
                assert tx.of(Facts).get(fact.id) == fact
                assert [one.fact_count for one in tx.of(Entities).list(graph.id)] == [1, 1, 0]

                assert tx.of(Facts).expire(graph.id, [fact.seq, 9], at=LATER) == [fact]
                assert tx.of(Facts).expire(graph.id, [fact.seq], at=LATER) == []
                assert [one.fact_count for one in tx.of(Entities).list(graph.id)] == [0, 0, 0]
                (second,) = tx.of(Facts).add(graph, [replace(fact, object=3, created_at=LATER, change="edit")])
                (other,) = tx.of(Facts).add(graph, [self.new_fact(graph.id, "Oslo is cold.", subject=3, object=2)])

                assert (second.seq, second.first_seq, second.text_seq) == (2, 1, 0)
                assert tx.of(Facts).versions(fact.id) == [replace(fact, expired_at=LATER), second]
                assert tx.of(Facts).get(fact.id) == second
                assert tx.of(Facts).list_by_ids([other.id, FactId("fact-none"), fact.id]) == [other, second]
                assert tx.of(Facts).list_by_seqs(graph.id, [3, 2, 9]) == [other, second]
                assert tx.of(Facts).list_by_firsts(graph.id, [3, 1]) == [second, other]
                assert [one.fact_count for one in tx.of(Entities).list(graph.id)] == [1, 1, 2]
                assert [one.text for one in tx.passages.page(graph.fact_archive_id)] == [fact.text, other.text]
                assert match_passages(tx, graph.fact_archive_id, "turin") == [0]
                assert tx.of(Graphs).counts(graph.id) == GraphCounts(facts=2, entities=3)
                with raises(NotFound):
                    tx.of(Facts).get(FactId("fact-none"))
                with raises(NotFound):
                    tx.of(Facts).versions(FactId("fact-none"))

            await store.write(unit)

    async def test_a_text_is_replaced_in_all_versions(self) -> None:
        """Nothing of it is left, not even in an id; the same text said again is another one."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                texts = ("Ada lives in Turin.", "Ada lives in Oslo.", "Ada lives in [redacted].")
                one, two, _ = tx.of(Facts).add(graph, [self.new_fact(graph.id, text) for text in texts])
                tx.of(Facts).expire(graph.id, [one.seq], at=LATER)
                tx.of(Facts).add(graph, [replace(one, created_at=LATER, change="restore")])
                (before,) = tx.passages.list_by_seqs(graph.fact_archive_id, [one.text_seq])

                tx.of(Facts).put_text(graph, one.text_seq, "Ada lives in [redacted].")
                tx.of(Facts).put_text(graph, two.text_seq, "Ada lives in [redacted].")
                tx.of(Facts).put_text(graph, 2, "Ada lives in [redacted].")
                assert {version.text_seq for version in tx.of(Facts).versions(one.id)} == {2}
                assert [fact.text for fact in tx.of(Facts).page(graph.id, where=FactFilter())] == [texts[2]] * 3
                assert [passage.seq for passage in tx.passages.page(graph.fact_archive_id)] == [2]
                assert match_passages(tx, graph.fact_archive_id, "turin") == []
                assert tx.passages.find_places([before.id]) == {}
                (again,) = tx.of(Facts).add(graph, [self.new_fact(graph.id, texts[0])])
                assert tx.of(Facts).get(again.id).text == texts[0]

            await store.write(unit)

    async def test_a_version_that_ends_as_it_begins_was_never_believed(self) -> None:
        """Also where the clock goes back; the one that follows it is believed at that moment."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                (fact,) = tx.of(Facts).add(graph, [self.new_fact(graph.id)])
                tx.of(Facts).expire(graph.id, [1], at=AT - DAY)
                (after,) = tx.of(Facts).add(graph, [replace(fact, text="Ada lives in Oslo.", object=3)])

                assert tx.of(Facts).versions(fact.id)[0].expired_at == AT
                assert tx.of(Facts).page(graph.id, where=FactFilter(as_of=AT)) == [after]
                assert tx.of(Facts).page(graph.id, where=FactFilter(as_of=AT - DAY)) == []

            await store.write(unit)

    async def test_a_fact_is_believed_in_one_version(self) -> None:
        """The database refuses a second one."""
        async with self.open_store() as store:
            graph = await store.write(self.add_world)
            (fact,) = await store.write(lambda tx: tx.of(Facts).add(graph, [self.new_fact(graph.id)]))

            with raises(Exception):
                await store.write(lambda tx: tx.of(Facts).add(graph, [replace(fact, text="Ada lives in Oslo.")]))

            assert await store.read(lambda tx: tx.of(Facts).versions(fact.id)) == [fact]

    async def test_facts_are_filtered(self) -> None:
        """By when they were true and believed, by entity, relation, type, rating, state, trust and scope."""
        async with self.open_store() as store:
            graph = await store.write(self.add_world)
            day = [AT + DAY * number for number in range(10)]
            new = [
                self.new_fact(graph.id, "a", valid_at=day[1], invalid_at=day[3], scope={"user_id": "ann"}),
                self.new_fact(graph.id, "b", invalid_at=day[5], object=3, rating=0.9, type="HOME"),
                self.new_fact(graph.id, "c", valid_at=day[6], subject=3, relation="IS_IN", trust="web"),
                self.new_fact(graph.id, "d", state="archived", scope={"user_id": 'an"n\ud800', "run_id": "r"}),
                self.new_fact(graph.id, "e", created_at=day[4], scope={"user_id": "ANN"}),
            ]
            facts = await store.write(lambda tx: tx.of(Facts).add(graph, new))
            await store.write(lambda tx: tx.of(Facts).expire(graph.id, [1], at=day[2]))

            async def texts(**filters: Any) -> str:
                where = FactFilter(**filters)
                page = await store.read(lambda tx: tx.of(Facts).page(graph.id, where=where))
                listed = await store.read(lambda tx: tx.of(Facts).list_by_texts(graph.id, range(9), where=where))
                assert page == listed
                return "".join(one.text for one in page)

            assert await store.read(lambda tx: tx.of(Facts).list_by_text(graph.id, "c")) == [facts[2]]
            assert await texts() == "bce"
            assert await texts(states=("active", "archived")) == "bcde"
            assert await texts(states=()) == ""
            assert await texts(as_of=AT) == "abc"
            assert await texts(as_of=day[2]) == "bc"
            assert await texts(as_of=day[4]) == "bce"
            assert await texts(as_of=AT - DAY) == ""
            assert await texts(as_of=AT, at=day[1]) == "ab"
            assert await texts(as_of=AT, at=day[3]) == "b"
            assert await texts(at=day[6]) == "ce"
            assert await texts(since=day[5]) == "ce"
            assert await texts(until=day[5]) == "be"
            assert await texts(as_of=AT, since=day[3], until=day[5]) == "b"
            assert await texts(entities=(3,)) == "bc"
            assert await texts(entities=(1, 2), relations=("IS_IN",)) == "c"
            assert await texts(types=("HOME",)) == "b"
            assert await texts(min_rating=0.9) == "b"
            assert await texts(trust=("user",)) == "be"
            assert await texts(trust=()) == ""
            assert await texts(scope=(("user_id", "ann"),), as_of=AT) == "a"
            assert await texts(scope=(("user_id", 'an"n\ud800'), ("run_id", "r")), states=("archived",)) == "d"
            pages = [(2, None, False, 9), (None, 3, False, 9), (None, None, True, 2)]
            expected = [[facts[2], facts[4]], [facts[1]], [facts[4], facts[2]]]
            for (after, before, newest_first, limit), page in zip(pages, expected, strict=True):
                read = await store.read(
                    lambda tx, after=after, before=before, newest=newest_first, limit=limit: tx.of(Facts).page(  # type: ignore[misc]
                        graph.id, where=FactFilter(), above=after, below=before, newest_first=newest, limit=limit
                    )
                )
                assert read == page

    async def test_facts_as_columns(self) -> None:
        """All versions in order, expired ones too; texts as they were."""
        async with self.open_store() as store:
            graph = await store.write(self.add_world)
            new = [
                self.new_fact(graph.id, "a", relation="IS\ud800", rating=0.25, valid_at=AT, invalid_at=LATER),
                self.new_fact(graph.id, "b", object=3, type="HOME", trust="web", scope={"user_id": 'an"n\ud800'}),
            ]
            await store.write(lambda tx: tx.of(Facts).add(graph, new))
            await store.write(lambda tx: tx.of(Facts).expire(graph.id, [1], at=LATER))

            rows = await store.read(lambda tx: tx.of(Facts).columns(graph.id))

            at, later = (when.isoformat(timespec="microseconds") for when in (AT, LATER))
            assert tuple(rows[0])[:11] == (1, 0, 1, 2, 0.25, at, later, at, later, "active", "user")
            assert tuple(rows[0])[12:] == ("IS\ud800", None, "{}")
            assert tuple(rows[1])[:11] == (2, 1, 1, 3, 0.5, None, None, at, None, "active", "web")
            assert tuple(rows[1])[12:14] == (new[1].relation, "HOME")
            assert json.loads(rows[1][14]) == {"user_id": 'an"n\ud800'}

    async def test_changed_facts_are_read_alone(self) -> None:
        """What is added, expires, gets another text or loses an erased one has the graph's version of then, and its
        archive a new one."""
        async with self.open_store() as store:
            graph = await store.write(self.add_world)
            changes: dict[str, Callable[[Tx], object]] = {
                "add": lambda tx: tx.of(Facts).add(graph, [self.new_fact(graph.id, text) for text in ("a", "b", "b")]),
                "expire": lambda tx: tx.of(Facts).expire(graph.id, [2], at=LATER),
                "add another": lambda tx: tx.of(Facts).add(
                    graph, [self.new_fact(graph.id, "c", scope={"user_id": "Ann"})]
                ),
                "text": lambda tx: tx.of(Facts).put_text(graph, 1, "other"),
                "erase": lambda tx: redact(tx, "facts", graph.id, Redactor("Ann")),
            }
            columns: dict[int, Row] = {}
            found, versions = {}, []
            for name, change in changes.items():
                after = (await store.read(lambda tx: tx.of(Graphs).get(graph.id))).version
                await store.write(change)
                rows = await store.read(lambda tx, at: tx.of(Facts).columns(graph.id, after_version=at), after)
                found[name] = [row[0] for row in rows]
                columns |= {row[0]: row for row in rows}
                versions.append((await store.read(lambda tx: tx.archives.get(graph.fact_archive_id))).version)

            assert found == {"add": [1, 2, 3], "expire": [2], "add another": [4], "text": [2, 3], "erase": [4]}
            assert [columns[seq] for seq in sorted(columns)] == await store.read(
                lambda tx: tx.of(Facts).columns(graph.id)
            )
            assert "Ann" not in columns[4][14]
            assert versions == sorted(set(versions))

    async def test_the_timeline_has_beginnings_and_ends(self) -> None:
        """In order of time, from `since` until before `until`; what was believed is read back by `as_of`."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                turin = self.new_fact(graph.id, "in Turin", valid_at=AT - DAY, invalid_at=AT + 2 * DAY)
                others = [self.new_fact(graph.id, "in Oslo", valid_at=AT + 2 * DAY), self.new_fact(graph.id, "no time")]
                _, oslo, _ = tx.of(Facts).add(graph, [turin, *others])

                def texts(**how: Any) -> list[tuple[str, str]]:
                    events = tx.of(Facts).timeline(graph.id, where=how.pop("where", FactFilter()), **how)
                    assert all(
                        event.at == (event.fact.valid_at if event.kind == "begin" else event.fact.invalid_at)
                        for event in events
                    )
                    return [(event.kind, event.fact.text) for event in events]

                everything = [("begin", "in Turin"), ("end", "in Turin"), ("begin", "in Oslo")]
                assert texts() == everything
                assert texts(newest_first=True) == everything[::-1]
                assert texts(limit=2) == everything[:2]
                assert texts(newest_first=True, limit=2) == everything[:0:-1]
                assert texts(since=AT) == everything[1:]
                assert texts(until=AT + 2 * DAY) == everything[:1]
                tx.of(Facts).expire(graph.id, [oslo.seq], at=AT + DAY)
                assert texts(since=AT) == everything[1:2]
                assert texts(since=AT, where=FactFilter(as_of=AT)) == everything[1:]
                assert texts(where=FactFilter(entities=(9,))) == []

            await store.write(unit)

    async def test_neighbours_are_of_believed_facts(self) -> None:
        """Both ways, the newest first."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                pairs = ((1, 2), (2, 3), (3, 1), (1, 2))
                new = [self.new_fact(graph.id, f"{pair}", subject=pair[0], object=pair[1]) for pair in pairs]
                tx.of(Facts).add(graph, new)
                tx.of(Facts).expire(graph.id, [1], at=LATER)

                assert tx.of(Facts).neighbours(graph.id, [1], limit=9) == [(1, 2), (3, 1)]
                assert tx.of(Facts).neighbours(graph.id, [2, 3], limit=2) == [(1, 2), (3, 1)]

                between = tx.of(Facts).list_between(graph.id, 1, 2, new[0].relation)
                assert [fact.seq for fact in between] == [4]
                assert tx.of(Facts).list_between(graph.id, 2, 1, new[0].relation) == []
                said = [one.id for one in tx.of(Facts).list_between(graph.id, 1, 2)]
                assert [one.id for one in between] == [one for one in said if one in {each.id for each in between}]
                assert tx.of(Facts).list_between(graph.id, 2, 1) == []
                assert tx.of(Facts).list_between(graph.id, 1, 2, "OTHER") == []

            await store.write(unit)

    async def test_facts_of_an_entity_come_by_relation_in_turn(self) -> None:
        """The newest of each relation first, whether the entity is the subject or the object."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                relations = ("LIVES_IN", "LIKES", "LIKES", "LIKES", "OWNS")
                facts = [
                    replace(self.new_fact(graph.id, f"{number}"), subject=one, object=other, relation=relation)
                    for number, relation in enumerate(relations)
                    for one, other in [(1, 2) if number % 2 else (2, 1)]
                ]
                added = tx.of(Facts).add(graph, facts)
                tx.of(Graphs).lock(graph.id)

                def places(most: int, where: FactFilter | None = None) -> list[tuple[int, str, int]]:
                    condition = where or FactFilter()
                    found = tx.of(Facts).list_newest_by_relation(graph.id, 1, where=condition, most=most)
                    return [(seq, relation, place) for seq, _, _, relation, place in found]

                every = [(5, "OWNS", 1), (4, "LIKES", 1), (3, "LIKES", 2), (2, "LIKES", 3), (1, "LIVES_IN", 1)]
                assert [places(most) for most in (1, 2, 9)] == [
                    [one for one in every if one[2] <= most] for most in (1, 2, 9)
                ]
                assert places(9, FactFilter(relations=("LIKES",))) == every[1:4]
                tx.of(Facts).expire(graph.id, [added[3].seq], at=LATER)
                assert places(1) == [(5, "OWNS", 1), (3, "LIKES", 1), (1, "LIVES_IN", 1)]

            await store.write(unit)

    async def test_versions_that_another_fact_ended_are_found(self) -> None:
        """Also where they are believed no longer; by either entity. And all versions of facts, oldest first."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                one, other = tx.of(Facts).add(graph, [self.new_fact(graph.id, text) for text in ("a", "b")])
                tx.of(Facts).expire(graph.id, [one.seq], at=LATER)
                (ended,) = tx.of(Facts).add(graph, [replace(one, change="supersede", created_at=LATER)])
                ends = one.subject, one.object

                assert [[fact.seq for fact in tx.of(Facts).list_ended(graph.id, [end])] for end in ends] == [
                    [ended.seq]
                ] * 2
                assert tx.of(Facts).list_ended(graph.id, [99]) == []
                tx.of(Facts).expire(graph.id, [ended.seq], at=LATER)
                assert {fact.seq for fact in tx.of(Facts).list_ended(graph.id, ends)} == {ended.seq}
                histories = tx.of(Facts).histories(graph.id, [other.seq, one.seq, 99])
                assert {first: [fact.seq for fact in versions] for first, versions in histories.items()} == {
                    one.seq: [one.seq, ended.seq],
                    other.seq: [other.seq],
                }

            await store.write(unit)

    async def test_facts_have_sources(self) -> None:
        """A fact whose last one goes is named; a link that is there is no second one."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_world(tx)
                one, other = tx.of(Facts).add(graph, [self.new_fact(graph.id, text) for text in ("a", "b")])
                tx.of(Episodes).add([self.new_episode(graph.id, name) for name in ("x", "y", "z")])
                tx.of(Facts).add_sources(graph.id, [(1, 1), (1, 2), (2, 2)])
                tx.of(Facts).add_sources(graph.id, [(1, 2)])

                assert tx.of(Facts).sources(graph.id, [1, 2, 3]) == {1: [1, 2], 2: [2], 3: []}
                assert tx.of(Facts).list_by_episodes(graph.id, [2]) == [one, other]
                assert tx.of(Facts).list_by_episodes(graph.id, [1, 3]) == [one]
                tx.of(Facts).expire(graph.id, [one.seq], at=LATER)
                assert tx.of(Facts).list_by_episodes(graph.id, [1, 2]) == [other]
                assert [tx.of(Facts).first_seqs(graph.id, seq) for seq in (2, 3)] == [[1, 2], []]
                assert tx.of(Facts).remove_sources(graph.id, [2, 3]) == [2]
                assert tx.of(Facts).remove_sources(graph.id, [2]) == []
                assert tx.of(Facts).sources(graph.id, [1, 2]) == {1: [1], 2: []}
                with raises(NotFound):
                    tx.of(Facts).add_sources(GraphId("graph-none"), [(1, 1)])

            await store.write(unit)

    async def test_episodes_are_there_once(self) -> None:
        """By what they refer to; they wait until they are extracted."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph = self.add_graph(tx)
                assert tx.of(Episodes).add([]) == ()
                new = [self.new_episode(graph.id, name, scope={"user_id": "ann"}) for name in ("x", "y", "x")]
                x, y, same = tx.of(Episodes).add(new)
                assert (x.seq, y.seq, same) == (1, 2, x)
                again, z = tx.of(Episodes).add([self.new_episode(graph.id, name) for name in ("y", "z")])
                assert (again, z.seq) == (y, 3)
                assert tx.of(Episodes).get(x.id) == x
                assert tx.of(Episodes).list(graph.id, limit=2) == [x, y]
                assert tx.of(Episodes).list(graph.id, newest_first=True, limit=2) == [z, y]
                assert tx.of(Episodes).list(graph.id, scope={"user_id": "ann"}) == [x, y]
                assert tx.of(Episodes).list(graph.id, scope={"user_id": "an"}) == []
                assert tx.of(Episodes).list_by_refs(graph.id, ["z", "x", "none"]) == [x, z]
                assert tx.of(Episodes).list_by_refs(graph.id, []) == []
                assert tx.of(Episodes).list_by_seqs(graph.id, [3, 1, 9]) == [x, z]

                assert [tx.of(Episodes).mark_extracted(graph.id, [2], at=LATER) for _ in range(2)] == [1, 0]
                assert tx.of(Episodes).list_waiting(graph.id) == tx.of(Episodes).list_next(graph.id, limit=9) == [x, z]
                tx.of(Episodes).count_tries(graph.id, [1])
                assert [one.seq for one in tx.of(Episodes).list_waiting(graph.id)] == [1, 3]
                assert tx.of(Episodes).list_next(graph.id, limit=9) == [z]
                tx.of(Episodes).count_tries(graph.id, [1, 3])
                assert [(one.seq, one.tries) for one in tx.of(Episodes).list_next(graph.id, limit=9)] == [
                    (3, 1),
                    (1, 2),
                ]
                tx.of(Episodes).mark_waiting(graph.id, [1, 3])
                assert tx.of(Episodes).list_next(graph.id, limit=1) == [x]
                assert tx.of(Episodes).list_next(GraphId("graph-none"), limit=9) == ()
                assert tx.of(Episodes).get(y.id).extracted_at == LATER
                assert tx.of(Graphs).counts(graph.id) == GraphCounts(episodes=3, waiting=2)
                of_message = self.new_episode(graph.id, "m", agent_id=AgentId("agent-1"), message_seq=4)
                tx.of(Episodes).add([of_message])
                listed = tx.of(Episodes).list_by_messages(AgentId("agent-1"), [4, 5])
                assert [one.ref for one in listed] == ["m"]
                assert tx.of(Episodes).list_by_messages(AgentId("agent-1"), [5]) == []
                second = self.add_graph(tx)
                tx.of(Episodes).add([self.new_episode(second.id, "y")])
                assert [(one.graph_id, one.ref) for one in tx.of(Episodes).find(["y", "z", "none"])] == sorted(
                    [(graph.id, "y"), (graph.id, "z"), (second.id, "y")]
                )
                assert tx.of(Episodes).find([]) == []
                tx.of(Episodes).mark_waiting(graph.id, [2])
                assert tx.of(Episodes).get(y.id).extracted_at is None
                assert [tx.of(Episodes).delete(graph.id, [1, 9]) for _ in range(2)] == [1, 0]
                with raises(NotFound):
                    tx.of(Episodes).get(x.id)

            await store.write(unit)

    async def test_a_conversation_is_read_up_to_a_row(self) -> None:
        """Each by itself, and of agents that are there."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                agent = self.add_agent(tx)
                assert tx.of(Episodes).last_seq(agent.id, 0) == -1
                tx.of(Episodes).put_last_seq(agent.id, 0, 4, at=AT)
                tx.of(Episodes).put_last_seq(agent.id, 0, 7, at=LATER)
                assert [tx.of(Episodes).last_seq(agent.id, seq) for seq in (0, 1)] == [7, -1]
                assert tx.of(Episodes).list_behind(limit=100) == []
                last = self.say(tx, agent.id, *(f"message {number}" for number in range(9)))[-1].seq
                assert tx.of(Episodes).list_behind(limit=100) == [(agent.id, 0)]
                assert tx.of(Episodes).list_behind_of(agent.id) == [0]
                assert [tx.of(Episodes).count_line_tries(agent.id, 0, at=AT) for _ in range(2)] == [1, 2]
                assert tx.of(Episodes).last_seq(agent.id, 0) == 7
                tx.of(Episodes).put_last_seq(agent.id, 0, last, at=LATER)
                assert [tx.of(Episodes).count_line_tries(agent.id, seq, at=AT) for seq in (0, 1)] == [1, 1]
                assert [tx.of(Episodes).last_seq(agent.id, seq) for seq in (0, 1)] == [last, -1]
                assert tx.of(Episodes).list_behind(limit=100) == []
                assert tx.of(Episodes).list_behind_of(agent.id) == []
                with raises(NotFound):
                    tx.of(Episodes).put_last_seq(AgentId("agent-none"), 0, 1, at=AT)
                with raises(NotFound):
                    tx.of(Episodes).count_line_tries(AgentId("agent-none"), 0, at=AT)

            await store.write(unit)

    def fill_graph(self, tx: Tx, agent: Agent) -> Graph:
        """A graph of the agent with two of everything."""
        graph = self.add_graph(tx, agent_id=agent.id)
        self.add_entities(tx, graph.id, "Ada", "Turin", aliases=("she",))
        tx.of(Facts).add(graph, [self.new_fact(graph.id, text) for text in ("Ada lives in Turin.", "Ada likes Turin.")])
        tx.of(Episodes).add([self.new_episode(graph.id, name) for name in ("x", "y")])
        tx.of(Facts).add_sources(graph.id, [(1, 1), (2, 2)])
        for seq in (1, 2):
            tx.of(Entities).put_community(Community(graph_id=graph.id, seq=seq, name="c", size=1, updated_at=AT))
            tx.of(Graphs).add_rule(FactRule(graph_id=graph.id, text="secret", created_at=AT))
        tx.of(Episodes).put_last_seq(agent.id, 0, 4, at=AT)
        return graph

    async def test_a_graph_goes_with_its_last_agent(self) -> None:
        """With all its rows, the archives of its texts and their ids; before that, another agent keeps it."""
        async with self.open_store() as store:
            one, two = [await store.write(self.add_agent, name) for name in ("one", "two")]
            before = await store.read(_row_counts)
            graph = await store.write(self.fill_graph, one)
            await store.write(lambda tx: tx.of(Graphs).attach(two.id, graph.id))
            with raises(InvalidInput):
                await store.write(lambda tx: tx.of(Graphs).delete(graph.id))

            await store.write(lambda tx: tx.agents.delete(one.id))
            assert (await store.read(lambda tx: tx.of(Graphs).counts(graph.id))).facts == 2
            await store.write(lambda tx: tx.agents.delete(two.id))

            with raises(NotFound):
                await store.read(lambda tx: tx.of(Graphs).get(graph.id))
            while await store.write(lambda tx: tx.upkeep.carry_out_deletes(limit=1)):
                pass
            after = await store.read(_row_counts)
            gone = {"agents", "agent_details", "conversations", "ids"}
            assert {table for table in before if before[table] != after[table]} <= gone
            assert after["ids"] < before["ids"]

    async def test_a_graph_without_agents_is_deleted(self) -> None:
        """What it holds can't be read from then on."""
        async with self.open_store() as store:
            agent = await store.write(self.add_agent)
            graph = await store.write(self.fill_graph, agent)
            (fact, _) = await store.read(lambda tx: tx.of(Facts).page(graph.id, where=FactFilter()))
            other = await store.write(self.add_graph)
            await store.write(lambda tx: tx.of(Graphs).attach(agent.id, other.id))

            await store.write(lambda tx: tx.of(Graphs).delete(graph.id))

            assert await store.read(lambda tx: tx.of(Graphs).list()) == [other]
            with raises(NotFound):
                await store.read(lambda tx: tx.of(Facts).get(fact.id))
            with raises(NotFound):
                await store.write(lambda tx: tx.of(Graphs).delete(graph.id))

    async def test_the_archives_of_a_graph_are_its_own(self) -> None:
        """They are in no list, and can't be deleted by themselves; vectors and checks cover them."""
        async with self.open_store() as store:

            def unit(tx: Tx) -> None:
                graph, own = self.add_graph(tx), self.add_archive(tx)
                archives = (graph.fact_archive_id, graph.entity_archive_id)
                assert tx.archives.list() == [own]
                for archive_id in archives:
                    with raises(InvalidInput):
                        tx.archives.delete(archive_id)
                assert {*archives, own.id} == {owner.id for owner in tx.upkeep.owners()}

            await store.write(unit)

    async def test_what_is_derived_of_entities_is_compared_and_mended(self) -> None:
        """Their counts of facts, and the names that lead to them; page by page, and only in one's own organisation."""
        async with self.open_store() as store:

            def unit(tx: Any) -> None:
                graph = self.add_world(tx)
                self.add_world(tx)
                tx.of(Facts).add(graph, [self.new_fact(graph.id)])
                page = tx.upkeep.check_entities(limit=4)
                assert page.after is not None
                assert tx.upkeep.check_entities(after=page.after, limit=4).after is None
                assert tx.upkeep.check_entities().faults == []

                db = tx.agents._db
                db.run("UPDATE entities SET fact_count = 7 WHERE seq = 2", {})
                db.run("DELETE FROM entity_names WHERE graph_id = :id AND seq = 3", {"id": graph.id})
                for repair in (False, True):
                    faults = tx.upkeep.check_entities(repair=repair).faults
                    assert sorted((fault.owner_id == graph.id, fault.count, fault.repaired) for fault in faults) == [
                        (False, 1, repair),
                        (True, 1, repair),
                        (True, 1, repair),
                    ]
                assert tx.upkeep.check_entities().faults == []
                assert [one.fact_count for one in tx.of(Entities).list(graph.id)] == [1, 1, 0]
                assert tx.of(Entities).find_by_names(graph.id, ["oslo"]) == {"oslo": [3]}

            await store.write(unit)


def _row_counts(tx: Any) -> dict[str, int]:
    """Table -> number of rows, of tables in which agents and graphs have rows."""
    tables = "agents agent_details conversations ids archives passages passage_tags archive_tags graphs agent_graphs"
    tables += " entities entity_names facts fact_sources episodes extractions fact_rules communities vector_scopes"
    db = tx.agents._db
    return {table: db.rows(f"SELECT COUNT(*) FROM {table}", {})[0][0] for table in tables.split()}
