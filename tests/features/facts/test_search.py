"""The search of facts: filters, both axes of time, entities of the query, and reasons."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from perdure import AsyncAgent, AsyncPerdure, FactHit, Hits
from perdure.core.ids import FactId
from perdure.features.facts.search.columns import FAR, FactColumns, load_fact_columns
from perdure.features.facts.tables import Facts, Graphs
from perdure.features.facts.values.facts import Fact, FactFilter
from perdure.settings import Settings
from perdure.testing import FakeClock

NOW = datetime(2024, 6, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


@dataclass
class _World:
    """An agent whose facts a test states."""

    perdure: AsyncPerdure
    agent: AsyncAgent
    clock: FakeClock

    async def know(self, text: str, subject: str, object_: str, **fields: Any) -> Fact:
        hit = await self.agent.facts.add_fact(text, subject=subject, object_=object_, **{"valid_at": NOW, **fields})
        return hit.fact

    async def find(self, query: str, **conditions: Any) -> list[str]:
        return texts(await self.agent.facts.search(query, **conditions))


def texts(hits: Sequence[FactHit]) -> list[str]:
    """The texts of hits, in order."""
    return [hit.fact.text for hit in hits]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[_World]:
    clock = FakeClock(NOW)
    settings = Settings(home=str(tmp_path), embedding="none")
    async with await AsyncPerdure.open(tmp_path / "facts.db", settings=settings, clock=clock) as perdure:
        yield _World(perdure, await perdure.create_agent("a", model="perdure/extractive"), clock)


async def test_facts_of_a_named_entity_are_found_without_its_words(world: _World) -> None:
    """Also of a name of one character; the fact says that its entity was near."""
    await world.know("他每天早上都要来一壶龙井。", "小王", "茶")
    await world.know("Bea likes chess.", "Bea", "chess")

    hits = await world.agent.facts.search("喝什么茶", explain=True)

    assert texts(hits) == ["他每天早上都要来一壶龙井。"]
    assert hits[0].why is not None
    assert hits[0].why.parts["distance"] > 0
    assert hits[0].why.score == pytest.approx(sum(hits[0].why.parts.values())) == pytest.approx(hits[0].score)


async def test_facts_one_step_away_follow(world: _World) -> None:
    """Facts of an entity that a fact connects with the named one come after its own; others not at all."""
    await world.know("They are sisters.", "Ada", "Bea")
    await world.know("Her home is in Oslo.", "Bea", "Oslo")
    await world.know("It has a fjord.", "Norway", "fjord")

    assert await world.find("Ada?") == ["They are sisters.", "Her home is in Oslo."]


async def test_the_user_is_meant_by_i_and_my(world: _World) -> None:
    await world.know("A cat called Miso lives with them.", "User", "Miso")
    await world.know("Bea has a dog.", "Bea", "dog")

    assert (await world.find("do I have pets?"))[0] == "A cat called Miso lives with them."


async def test_what_ended_comes_after_what_is_true(world: _World) -> None:
    """Unless the query or the filter names a time at which it was true."""
    await world.know("Ada works at Acme.", "Ada", "Acme", valid_at=NOW - 4 * YEAR, invalid_at=NOW - 2 * YEAR)
    await world.know("Ada works in the lab of Initech now.", "Ada", "Initech", valid_at=NOW - 2 * YEAR)

    assert await world.find("Ada works at") == ["Ada works in the lab of Initech now.", "Ada works at Acme."]
    assert (await world.find("Where did Ada work in 2021?"))[0] == "Ada works at Acme."
    assert await world.find("Ada works", at=NOW - 3 * YEAR) == ["Ada works at Acme."]
    assert await world.find("Ada works", at=NOW - 2 * YEAR) == ["Ada works in the lab of Initech now."]
    assert len(await world.find("Ada works", since=NOW - 3 * YEAR, until=NOW)) == 2
    hits = await world.agent.facts.search("Where did Ada work in 2021?", explain=True)
    assert [hit.why is not None and "time" in hit.why.parts for hit in hits] == [True, False]
    ended = (await world.agent.facts.search("Ada works", explain=True))[1]
    assert ended.why is not None
    assert ended.why.parts["ended"] < 0


async def test_what_was_believed_is_found_as_of_that_day(world: _World) -> None:
    fact = await world.know("Ada lives in Turin.", "Ada", "Turin")
    world.clock.advance(86_400)
    await world.agent.facts.update(fact.id, text="Ada lives in Rome.")

    assert await world.find("Where does Ada live?") == ["Ada lives in Rome."]
    assert await world.find("Where does Ada live?", as_of=NOW) == ["Ada lives in Turin."]
    assert await world.find("Ada", as_of=NOW - YEAR) == []


async def test_a_deletion_that_is_taken_back_leaves_the_search_as_it_was(world: _World) -> None:
    facts = [await world.know(f"Ada likes {what}.", "Ada", what) for what in ("chess", "tea", "rain")]
    before = await world.agent.facts.search("Ada likes", explain=True)

    await world.agent.facts.delete(facts[1].id)
    assert "Ada likes tea." not in await world.find("Ada likes")
    await world.agent.facts.restore(facts[1].id)
    after = await world.agent.facts.search("Ada likes", explain=True)

    assert [(hit.fact.id, hit.score, hit.why) for hit in after] == [(hit.fact.id, hit.score, hit.why) for hit in before]


async def test_facts_are_filtered_by_all_that_they_have(world: _World) -> None:
    await world.know("Ada likes tea.", "Ada", "tea", rating=0.9, scope={"user_id": "ann"})
    await world.know("Ada likes rum.", "Ada", "rum", rating=0.2, trust="web", relation="DRINKS", type="TASTE")
    await world.know("Ada likes rye.", "Ada", "rye", state="archived")

    assert sorted(await world.find("Ada likes")) == ["Ada likes rum.", "Ada likes tea."]
    assert await world.find("Ada likes", entity="tea") == ["Ada likes tea."]
    assert await world.find("Ada likes", relations=["DRINKS"]) == ["Ada likes rum."]
    assert await world.find("Ada likes", types=["TASTE"]) == ["Ada likes rum."]
    assert await world.find("Ada likes", min_rating=0.9) == ["Ada likes tea."]
    assert await world.find("Ada likes", states=["archived"]) == ["Ada likes rye."]
    assert await world.find("Ada likes", trust=["user"]) == ["Ada likes tea."]
    assert await world.find("Ada likes", scope={"user_id": "ann"}) == ["Ada likes tea."]


async def test_a_rare_fact_is_found_among_many_that_the_filter_excludes(world: _World) -> None:
    """Its word is frequent, and all newer facts with it do not match."""
    graph = (await world.know("Quince wine is old.", "Ada", "wine", rating=0.9)).graph_id
    many = [f"Quince number {number} is new." for number in range(2_000)]

    def add(tx: Any) -> None:
        facts = [
            replace(fact, id=cast(Any, f"fact-{number}"), text=text, first_seq=0, rating=0.1)
            for fact in tx.of(Facts).list_by_seqs(graph, [1])
            for number, text in enumerate(many)
        ]
        tx.of(Facts).add(tx.of(Graphs).get(graph), facts)

    await world.perdure.app.store.write(add)

    assert await world.find("quince", min_rating=0.5) == ["Quince wine is old."]


async def test_columns_filter_as_the_database_does(world: _World) -> None:
    """Every condition, on all versions."""
    rng = np.random.default_rng(3)
    days = [None, *(NOW + timedelta(days=int(day)) for day in range(6))]
    for number in range(40):
        begin, end = sorted(int(day) for day in rng.integers(0, 7, 2))
        fact = await world.know(
            f"fact {number}",
            f"s{rng.integers(3)}",
            f"o{rng.integers(3)}",
            valid_at=days[begin],
            invalid_at=days[end] if begin else None,
            relation=f"R{rng.integers(2)}",
            type=[None, "T"][rng.integers(2)],
            rating=float(rng.random()),
            state=["active", "archived"][rng.integers(2)],
            trust=["user", "web"][rng.integers(2)],
            scope=[{}, {"user_id": "ann"}, {"user_id": "ann", "run_id": "r"}][rng.integers(3)],
        )
        world.clock.advance(7_200)
        if rng.integers(4) == 0:
            await world.agent.facts.delete(fact.id)

    choices: dict[str, list[Any]] = {
        **{
            "at": days,
            "since": days,
            "until": days,
            "as_of": [None, NOW, NOW + timedelta(days=1), NOW + timedelta(days=9)],
        },
        **{"entities": [(), (), (1,), (2, 3)], "relations": [(), (), ("R1",), ("none",)], "types": [(), (), ("T",)]},
        **{"min_rating": [0.0, 0.0, 0.5], "states": [("active",), ("active", "archived"), ("archived",)]},
        "trust": [None, None, ("web",), ()],
        "scope": [(), (), (("user_id", "ann"),), (("user_id", "ann"), ("run_id", "r"))],
    }
    filters = [
        FactFilter(**{name: values[rng.integers(len(values))] for name, values in choices.items()}) for _ in range(120)
    ]

    def both(tx: Any) -> list[tuple[list[int], list[int]]]:
        columns = load_fact_columns(tx, fact.graph_id)
        return [
            (
                sorted(one.seq for one in tx.of(Facts).page(fact.graph_id, where=where)),
                columns.seq[columns.match(where)].tolist(),
            )
            for where in filters
        ]

    pairs = await world.perdure.app.store.read(both)
    assert [of_columns for _, of_columns in pairs] == [of_database for of_database, _ in pairs]
    assert sum(bool(found) for found, _ in pairs) > 20


async def test_columns_that_follow_changes_equal_those_that_are_loaded_anew(world: _World) -> None:
    """Facts are added, changed, deleted, restored and get other texts; only rows that changed are read."""
    rng = np.random.default_rng(5)
    facts: list[FactId] = []
    store, agent = world.perdure.app.store, world.agent
    graph_id = (await world.know("Ada likes tea.", "Ada", "tea")).graph_id
    columns = await store.read(load_fact_columns, graph_id)
    for number in range(60):
        world.clock.advance(3_600)
        choice, some = rng.integers(5), facts[rng.integers(len(facts))] if facts else None
        if some is None or choice < 2:
            scope = {"user_id": f"u{number}"} if choice else {}
            facts.append((await world.know(f"fact {number}", f"s{rng.integers(9)}", "o", scope=scope)).id)
        elif choice == 2:
            await agent.facts.update(some, text=f"changed {number}", rating=float(rng.random()))
        elif choice == 3:
            await agent.facts.delete(some)
        else:
            await agent.facts.restore(some)
        rows = len(await store.read(lambda tx, at: tx.of(Facts).columns(graph_id, after_version=at), columns.version))
        columns = await store.read(load_fact_columns, graph_id, columns)

        assert rows <= 2
        assert plain(columns) == plain(await store.read(load_fact_columns, graph_id))


def plain(columns: FactColumns) -> list[tuple[Any, ...]]:
    """The rows of columns, with their labels."""
    names = ("seq", "text_seq", "subject", "object", "rating", "valid_at", "invalid_at", "created_at", "expired_at")
    labels = {name: {code: value for value, code in of_value.items()} for name, of_value in columns.labels.items()}
    coded = [[of_code[code] for code in columns.codes[name].tolist()] for name, of_code in labels.items()]
    return list(zip(*(getattr(columns, name).tolist() for name in names), *coded, strict=True))


async def test_a_graph_without_facts_is_searched(world: _World) -> None:
    """One is made by a rule, before anything is known."""
    await world.agent.facts.add_rule("tea")

    assert await world.find("tea") == []


async def test_distances_follow_the_facts_that_match_alone(world: _World) -> None:
    chain = [("a", "b"), ("b", "c"), ("c", "d")]
    for one, other in chain:
        fact = await world.know(f"{one} {other}", one, other)

    columns = await world.perdure.app.store.read(lambda tx: load_fact_columns(tx, fact.graph_id))

    rows = np.arange(3)
    assert columns.distances(rows, [1]).tolist() == [0, 1, FAR]
    assert columns.distances(rows[1:], [1]).tolist() == [FAR, FAR]
    assert columns.distances(rows, []).tolist() == [FAR, FAR, FAR]
    assert columns.distances(rows[:0], [1]).tolist() == []


async def test_an_agent_that_knows_nothing_finds_nothing(world: _World) -> None:
    assert await world.agent.facts.search("tea") == Hits()
    await world.know("Ada likes tea.", "Ada", "tea", state="archived")
    assert await world.agent.facts.search("tea") == []
    assert await world.agent.facts.search("tea", at=NOW - YEAR) == []


async def test_a_sentence_that_was_true_at_two_times_is_found_for_each(world: _World) -> None:
    """Each of its facts is a hit with the times of its own; what is true now stands before what has ended."""
    years = [datetime(year, 1, 1, tzinfo=UTC) for year in (2015, 2018, 2022)]
    for place, begin, end in zip(("Oslo", "Rome", "Oslo"), years, (*years[1:], None), strict=True):
        more = {"relation": "LIVES_IN", "invalid_at": end}
        await world.know(f"Ada lives in {place}.", "Ada", place, valid_at=begin, **more)
    then = await world.agent.facts.search("Where did Ada live in 2016?")
    now = await world.agent.facts.search("Ada Oslo")
    at = await world.agent.facts.search("Ada Oslo", at=datetime(2016, 6, 1, tzinfo=UTC))

    assert then[0].fact.valid_at == years[0]
    assert [hit.fact.valid_at for hit in now if "Oslo" in hit.fact.text] == [years[2], years[0]]
    assert [hit.fact.valid_at for hit in at] == [years[0]]
