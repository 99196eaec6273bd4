"""Facts in the dashboard: found, corrected, forgotten, accepted, captured or not, and where each comes from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from perdure import AsyncAgent, AsyncPerdure
from perdure.core.ids import FactId
from perdure.features.facts.service import NewFactFields
from perdure.features.facts.tables import Entities
from perdure.features.facts.units.graphs import graph_of_agent
from perdure.storage.tx import Tx
from tests.ui.browser import dashboard, tags_of, text_of, undo
from tests.ui.test_pages import HOSTILE

Y2020, Y2022 = datetime(2020, 1, 1, tzinfo=UTC), datetime(2022, 1, 1, 15, 30, tzinfo=UTC)


async def add(library: AsyncPerdure, agent: AsyncAgent, text: str, **fields: Any) -> FactId:
    """Add a fact: who lives where, from when until when."""
    subject, _, place = text.partition(" lives in ")
    named: dict[str, Any] = {"subject": subject, "relation": "LIVES_IN", "object_": place} if place else {}
    values: NewFactFields = fields  # type: ignore[assignment]
    return (await agent.facts.add_fact(text, **named, **values)).fact.id


async def page_of(client: httpx.AsyncClient, agent: AsyncAgent, path: str = "", **query: str) -> Any:
    """The JSON of a page of facts."""
    return (await client.get(f"/agents/{agent.id}/facts{path}", params={**query, "format": "json"})).json()


async def texts(client: httpx.AsyncClient, agent: AsyncAgent, **query: str) -> list[str]:
    """The sentences that the page shows."""
    return [fact["text"] for fact in (await page_of(client, agent, **query))["facts"]]


async def test_facts_are_filtered_by_state_time_entity_and_relation() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await add(library, agent, "Ada lives in Genoa", valid_at=Y2020, invalid_at=Y2022)
        await add(library, agent, "Ada lives in Turin", valid_at=Y2022)
        await add(library, agent, "Bob lives in Rome", state="proposed")
        await add(library, agent, "Cem lives in Oslo", state="archived")
        await add(library, agent, "The key is under the mat")
        past = await page_of(client, agent, state="past")

        assert await texts(client, agent) == ["The key is under the mat", "Ada lives in Turin", "Ada lives in Genoa"]
        assert await texts(client, agent, state="current") == ["The key is under the mat", "Ada lives in Turin"]
        assert [(one["text"], one["state"]) for one in past["facts"]] == [("Ada lives in Genoa", "past")]
        assert await texts(client, agent, state="past", q="where does Ada live") == ["Ada lives in Genoa"]
        assert await texts(client, agent, state="proposed") == ["Bob lives in Rome"]
        assert await texts(client, agent, state="archived") == ["Cem lives in Oslo"]
        assert await texts(client, agent, at="2021-06-01") == ["Ada lives in Genoa"]
        assert await texts(client, agent, as_of="2021-06-01") == []
        assert await texts(client, agent, relation="lives in", entity="Ada", state="current") == ["Ada lives in Turin"]


async def test_a_filter_that_means_nothing_says_so_on_the_page() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await add(library, agent, "Ada lives in Turin")
        for query in ({"entity": "Bob"}, {"at": "yesterday"}, {"state": "odd"}, {"after": "fact-0"}):
            page = await client.get(f"/agents/{agent.id}/facts", params=query)

            assert page.status_code == 200
            assert next(iter(query.values())) in text_of(page.text)
            assert any(values.get("role") == "alert" for _, values in tags_of(page.text)), query


async def test_a_search_says_why_each_fact_was_found() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await add(library, agent, "Ada lives in Turin")
        await add(library, agent, "Bob lives in Rome")
        (best, *_) = (await page_of(client, agent, q="where does Ada live"))["facts"]
        page = await client.get(f"/agents/{agent.id}/facts", params={"q": "Ada"})

    assert best["text"] == "Ada lives in Turin"
    assert {"its words", "whom it is about"} <= {part["name"] for part in best["why"]}
    assert sum(part["score"] for part in best["why"]) == pytest.approx(best["score"], abs=0.05)
    assert "Why this result" in text_of(page.text)


async def test_pages_of_facts_and_events_hold_each_one_once() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        for number in range(120):
            await add(library, agent, f"Person {number} lives in Turin", valid_at=Y2020 if number % 3 else Y2022)
        seen, query = list[str](), dict[str, str]()
        while query is not None:
            page = await page_of(client, agent, **query)
            seen += [fact["text"] for fact in page["facts"]]
            query = dict(httpx.QueryParams(page["more"])) if page["more"] else None  # type: ignore[assignment]
        first = await page_of(client, agent, "/timeline")
        rest = await page_of(client, agent, "/timeline", until=first["older"])

    assert len(seen) == len(set(seen)) == 120
    events = [event["text"] for event in (*first["events"], *rest["events"])]
    assert len(events) == len(set(events)) == 120
    assert rest["older"] is None


async def test_a_correction_of_a_fact_is_undone() -> None:
    """The time of a day that stays is kept, and an empty day takes the time away."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        fact_id = await add(library, agent, "Ada lives in Turin", valid_at=Y2020, invalid_at=Y2022)
        where = f"/agents/{agent.id}/facts/{fact_id}"
        form = {"text": "Ada lives in Turin, near the river", "since": "2019-05-01", "until": "2022-01-01"}
        page = await client.post(where, data=form)
        edited = (await agent.facts.get(fact_id)).fact
        assert (edited.text, edited.invalid_at) == (form["text"], Y2022)
        assert edited.valid_at == datetime(2019, 5, 1, tzinfo=UTC)
        await undo(client, page)
        again = (await agent.facts.get(fact_id)).fact
        assert (again.text, again.valid_at, again.invalid_at) == ("Ada lives in Turin", Y2020, Y2022)
        await client.post(where, data={"text": again.text, "since": "2020-01-01", "until": ""})
        assert (await agent.facts.get(fact_id)).fact.invalid_at is None
        wrong = await client.post(where, data={"text": again.text, "since": "2020-01-01", "until": "2019-01-01"})

    assert wrong.status_code == 422 and "before it begins" in text_of(wrong.text)


async def test_a_late_correction_of_a_fact_is_refused_with_both_sentences() -> None:
    """In the list and in the profile, whose forms say what they were filled with; so does an undo."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        fact_id = await add(library, agent, "Ada lives in Turin")
        where = f"/agents/{agent.id}/facts"
        for path in ("", "/profile?user=Ada"):
            assert 'name="was"' in (await client.get(f"{where}{path}")).text
        was = (await page_of(client, agent))["facts"][0]["was"]
        was = {**was, "was": json.dumps(was)}
        page = await client.post(f"{where}/{fact_id}", data={**was, "text": "Ada lives in Rome."})
        for path in ("", "/profile"):
            late = await client.post(f"{where}{path}/{fact_id}", data={**was, "text": "Ada lives in Bari."})
            assert late.status_code == 409 and 'id="conflict"' in late.text
            assert "+Ada lives in Rome." in late.text and "+Ada lives in Bari." in late.text
        await client.post(f"{where}/{fact_id}", data={**was, "until": "2027-01-01"})
        fact = (await library.facts.get(fact_id)).fact
        assert fact.text == "Ada lives in Rome." and fact.invalid_at is not None
        await library.facts.update(fact_id, text="Ada lives in Lecce.")
        with pytest.raises(AssertionError, match="Lecce"):
            await undo(client, page)


async def test_selected_facts_are_forgotten_and_brought_back() -> None:
    """The filters of the page stay."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        ids = [await add(library, agent, f"{name} lives in Turin") for name in ("Ada", "Bob", "Cem")]
        where = f"/agents/{agent.id}/facts/selected"
        page = await client.post(f"{where}?entity=Turin", data={"fact": ids[:2], "choice": "forget"})
        left = await texts(client, agent)
        await undo(client, page)
        none = await client.post(where, data={"choice": "forget"})
        odd = await client.post(where, data={"fact": ids, "choice": "odd"})

        assert left == ["Cem lives in Turin"]
        assert "Forgotten: 2 facts." in text_of(page.text) and 'value="Turin"' in page.text
        assert len(await texts(client, agent)) == 3
    assert none.status_code == 422 and "no fact is selected" in text_of(none.text)
    assert odd.status_code == 422 and "'odd'" in text_of(odd.text)


async def test_faded_passages_are_listed_and_brought_back() -> None:
    """Beside the facts that have faded, with what they are out of."""
    async with dashboard() as (client, library):
        agent = await library.create_agent(
            "ann", settings={"facts": {"forgetting": {"min_score": 1, "min_age_days": 0}}}
        )
        passage = await agent.archive(HOSTILE)
        assert (await page_of(client, agent, state="archived"))["passages"] == []
        await agent.facts.tidy()
        assert (await page_of(client, agent))["passages"] == []
        page = (await client.get(f"/agents/{agent.id}/facts", params={"state": "archived"})).text
        assert HOSTILE not in page
        assert f"{HOSTILE} out of recall" in text_of(page)
        memory = (await client.get(f"/agents/{agent.id}/memory")).text
        assert f'<a class="state archived" href="/agents/{agent.id}/facts?state=archived">faded</a>' in memory

        answer = await client.post(f"/agents/{agent.id}/facts/passages?state=archived", data={"passage": passage.id})
        assert "recalls the text again" in text_of(answer.text)
        assert [one.state for one in await agent.passages()] == ["active"]


@pytest.mark.parametrize("state", ["proposed", "archived"])
async def test_facts_that_wait_or_faded_become_known_and_go_back(state: str) -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        ids = [await add(library, agent, f"{name} lives in Turin", state=state) for name in ("Ada", "Bob")]
        page = await client.post(f"/agents/{agent.id}/facts/selected", data={"fact": ids, "choice": "active"})
        known = await texts(client, agent)
        await undo(client, page)

        assert len(known) == 2
        assert await texts(client, agent) == [] and len(await texts(client, agent, state=state)) == 2


async def test_never_again_forgets_a_fact_and_keeps_it_from_being_extracted() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        (hit,) = await agent.facts.ingest("I live in Turin.")
        page = await client.post(f"/agents/{agent.id}/facts/never", data={"fact": hit.fact.id})
        await agent.facts.ingest("I still live in Turin.")
        assert await texts(client, agent) == []
        await undo(client, page)

        assert await texts(client, agent) == [hit.fact.text]
        assert await agent.facts.rules() == []


async def test_a_rule_is_added_and_lifted() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where = f"/agents/{agent.id}/facts/rules"
        await add(library, agent, "Ada lives in Turin")
        await client.post(where, data={"text": "Turin", "relation": "lives in", "entity": "Ada"})
        (rule,) = (await page_of(client, agent))["rules"]
        page = await client.post(f"{where}/{rule['number']}/delete")
        lifted = await agent.facts.rules()
        await undo(client, page)
        empty = await client.post(where, data={"text": " "})
        unknown = await client.post(f"{where}/99/delete")

        assert (rule["text"], rule["relation"], rule["entity"]) == ("Turin", "LIVES_IN", "Ada")
        assert lifted == [] and [one.entity_name for one in await agent.facts.rules()] == ["Ada"]
    assert empty.status_code == 422 and "the rule is empty" in text_of(empty.text)
    assert unknown.status_code == 404


async def test_capture_is_on_asks_or_is_off_and_pauses() -> None:
    """Other settings of the agent's facts stay."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann", settings={"facts": {"recall": 3}})
        where = f"/agents/{agent.id}/facts"
        page = await client.post(f"{where}/capture", data={"mode": "ask"})
        await agent.facts.ingest("I live in Turin.")
        assert await texts(client, agent, state="proposed") == ["User lives in Turin."]
        assert (await library.agent("ann")).info.settings["facts"] == {"recall": 3, "capture": "ask"}
        await undo(client, page)
        assert (await page_of(client, agent))["capture"]["mode"] == "on"
        wrong = await client.post(f"{where}/capture", data={"mode": "maybe"})
        assert wrong.status_code == 422 and "'maybe'" in text_of(wrong.text)

        page = await client.post(f"{where}/pause", data={"paused": "yes"})
        assert (await page_of(client, agent))["capture"]["paused"]
        await undo(client, page)
        assert not (await page_of(client, agent))["capture"]["paused"]


async def test_a_fact_is_added_by_hand() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where = f"/agents/{agent.id}/facts"
        form = {"text": "Ada lived in Genoa.", "subject": "Ada", "relation": "lives in", "object": "Genoa"}
        page = await client.post(where, data={**form, "until": "2020-01-01"})
        (shown,) = (await page_of(client, agent))["facts"]
        await undo(client, page)
        await client.post(where, data={"text": "The key is under the mat."})
        wrong = await client.post(where, data={**form, "since": "soon"})

        assert (shown["subject"], shown["relation"], shown["state"]) == ("Ada", "LIVES_IN", "past")
        assert shown["valid_at"] is None and shown["author"] == "person"
        assert await texts(client, agent) == ["The key is under the mat."]
    assert wrong.status_code == 422 and "since is 'soon': write a date" in text_of(wrong.text)


async def test_the_profile_has_values_by_slots_with_their_facts() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        fact_id = await add(library, agent, "Ada lives in Turin")
        profile = await page_of(client, agent, "/profile", user="Ada")
        page = await client.get(f"/agents/{agent.id}/facts/profile", params={"user": "Ada"})
        none = await client.get(f"/agents/{agent.id}/facts/profile", params={"user": "Bob"})

    (group,) = profile["groups"]
    assert group["name"] == "Person"
    values = {slot["name"]: [entry["value"] for entry in slot["entries"]] for slot in group["slots"]}
    assert values == {"name": ["Ada"], "location": ["Turin"]}
    assert f'href="/why?of={fact_id}"' in page.text
    assert "Nothing is known about “Bob”" in text_of(none.text)


async def test_a_value_of_the_profile_is_corrected_and_forgotten_where_it_stands() -> None:
    """The page stays that of the same person, shows the new value at once, and both can be undone."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        fact_id = await add(library, agent, "Ada lives in Turin")
        where = f"/agents/{agent.id}/facts/profile/{fact_id}"
        corrected = await client.post(f"{where}?user=Ada", data={"text": "Ada lives in Rome."})
        fact = (await library.facts.get(fact_id)).fact
        await undo(client, corrected)
        back = (await library.facts.get(fact_id)).fact
        forgotten = await client.post(f"{where}/forget?user=Ada")
        late = await client.post(f"{where}/forget?user=Ada")
        none = text_of((await client.get(f"/agents/{agent.id}/facts/profile?user=Ada")).text)
        await undo(client, forgotten)
        again = text_of((await client.get(f"/agents/{agent.id}/facts/profile?user=Ada")).text)
        empty = await client.post(where, data={"text": " "})

    assert "Rome" in text_of(corrected.text) and 'value="Ada"' in corrected.text
    assert (fact.text, back.text) == ("Ada lives in Rome.", "Ada lives in Turin")
    assert "Forgotten: Ada lives in Turin" in text_of(forgotten.text)
    assert "Location" not in none and "Location" in again
    assert empty.status_code == 422
    assert late.status_code == 404 and "forgotten already" in text_of(late.text)


async def test_the_timeline_shows_beginnings_and_ends() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await add(library, agent, "Ada lives in Genoa", valid_at=Y2020, invalid_at=Y2022)
        events = (await page_of(client, agent, "/timeline"))["events"]
        early = (await page_of(client, agent, "/timeline", until="2021-01-01"))["events"]
        unknown = await page_of(client, agent, "/timeline", entity="Bob")

    assert [event["kind"] for event in events] == ["end", "begin"]
    assert [event["kind"] for event in early] == ["begin"]
    assert "Bob" in unknown["problem"]


async def test_entities_and_communities_are_listed() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await add(library, agent, "Ada lives in Turin")
        await add(library, agent, "Bob lives in Turin")
        found = await page_of(client, agent, "/entities")
        page = await client.get(f"/agents/{agent.id}/facts/entities")

    assert {one["name"]: one["facts"] for one in found["entities"]} == {"Ada": 1, "Bob": 1, "Turin": 2}
    (community,) = found["communities"]
    assert {one["name"] for one in community["members"]} == {"Ada", "Bob", "Turin"}
    assert "Bob" in text_of(page.text)


async def test_texts_of_facts_are_shown_as_texts() -> None:
    """Sentences, names, rules and summaries, on every page of facts."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await agent.facts.add_fact(f"Ada {HOSTILE}", subject=HOSTILE, object_=f"x{HOSTILE}")
        await agent.facts.add_rule(HOSTILE)

        def summarise(tx: Tx) -> None:
            ports = library.app.ports
            graph = graph_of_agent(tx, agent.id, ids=ports.ids, at=ports.clock.now())
            tx.of(Entities).put_community(replace(tx.of(Entities).list_communities(graph.id)[0], summary=HOSTILE))

        await library.app.ports.store.write(summarise)
        paths = ("", "?q=Ada", f"?entity={HOSTILE}", f"/profile?user={HOSTILE}", "/timeline", "/entities")
        pages = [(await client.get(f"/agents/{agent.id}/facts{path}")).text for path in paths]

    assert all("<script>alert(1)" not in page and "<img src=x" not in page for page in pages)
    assert all("&lt;script&gt;alert(1)" in page for page in pages)


async def test_why_shows_the_versions_and_sources_of_a_fact() -> None:
    """Its texts are shown as texts, whatever they hold, and a message has a link to the chat."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        fact = (await agent.facts.add(f"Ada {HOSTILE}", subject=HOSTILE)).fact
        await agent.facts.update(fact.id, text="Ada lives in Milan.")
        page = (await client.get("/why", params={"of": fact.id})).text
        await agent.send("I live in Turin.")
        (said,) = await agent.facts.extract()
        source = (await client.get("/why", params={"of": said.fact.id})).text
        links = [str(values["href"]) for tag, values in tags_of(source) if "conversation=" in str(values.get("href"))]
        chat = await client.get(links[0])

    assert "a person corrected it" in text_of(page)
    assert "Ada lives in Milan." in text_of(page)
    assert "<script>alert(1)" not in page
    assert "I live in Turin." in text_of(chat.text)


async def test_entities_are_merged_renamed_and_both_taken_back() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/facts/entities"
        for text, subject, object_ in (
            ("Ada lives in Turin.", "Ada", "Turin"),
            ("Ada likes tea.", "Ada", "tea"),
            ("Ada Lovelace has a cat.", "Ada Lovelace", "a cat"),
        ):
            await agent.facts.add(text, subject=subject, relation="KNOWS", object=object_)
        ids = {entity.name: entity.id for entity in await agent.facts.entities()}
        alone = await client.post(f"{where}/selected", data={"entity": ids["Ada"]})
        page = await client.post(f"{where}/selected", data={"entity": [ids["Ada Lovelace"], ids["Ada"]]})
        assert alone.status_code == 422 and "at least two" in text_of(alone.text)
        assert "“Ada Lovelace” was merged into “Ada”." in text_of(page.text)
        assert "Ada Lovelace" not in [one.name for one in await agent.facts.entities()]
        await undo(client, page)
        assert "Ada Lovelace" in [one.name for one in await agent.facts.entities()]

        form = {"name": "Torino", "type": "Location", "aliases": "the town\n"}
        page = await client.post(f"{where}/{ids['Turin']}", data=form)
        after = await agent.facts.get_entity(ids["Turin"])
        assert (after.name, after.type, after.aliases) == ("Torino", "Location", ("the town", "Turin"))
        await undo(client, page)
        after = await agent.facts.get_entity(ids["Turin"])
        assert (after.name, after.aliases) == ("Turin", ())

        page = await client.post(f"{where}/{ids['a cat']}/merge", data={"into": "tea"})
        assert "was merged into “tea”" in text_of(page.text)
        wrong = await client.post(f"{where}/{ids['Turin']}/merge", data={"into": "Nobody"})
        assert wrong.status_code == 404
        late = await client.post(f"{where}/{ids['a cat']}", data={"name": "the cat", "type": "Animal"})
        assert late.status_code == 422 and "'a cat' was merged into 'tea'" in text_of(late.text)
        taken = await client.post(f"{where}/{ids['Turin']}", data={"name": "tea", "type": "Location"})
        assert taken.status_code == 409 and "'Turin' is the same, merge it" in text_of(taken.text)


async def test_entities_are_sorted_by_their_columns() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/facts/entities"
        for name in ("bob", "Ada", "Eve"):
            await agent.facts.add(f"{name} likes tea.", subject=name, relation="LIKES", object="tea")
        found = {}
        for sort in ("", "name", "-name", "-facts", "nothing"):
            twin = (await client.get(where, params={"sort": sort, "format": "json"})).json()
            found[sort] = [one["name"] for one in twin["entities"]]
        page = await client.get(where, params={"sort": "name"})

    assert found["name"] == ["Ada", "bob", "Eve", "tea"] and found["-name"] == found["name"][::-1]
    assert found[""] == found["-facts"] == found["nothing"] == ["tea", "bob", "Ada", "Eve"]
    assert 'aria-sort="ascending"><a class="sort" href="?sort=-name"' in page.text


async def test_the_graph_shows_what_is_true_on_a_day_with_links_to_sentences() -> None:
    """All lines keep their places; those that are not true then are away, also from the table."""
    async with dashboard() as (client, library):
        agent = await library.create_agent("Ada")
        where = f"/agents/{agent.id}/facts/graph"
        empty = await client.get(where)
        for text, object_, since, until in (
            ("Ada lived in Genoa.", "Genoa", datetime(2014, 3, 1, tzinfo=UTC), datetime(2021, 9, 1, tzinfo=UTC)),
            ("Ada lives in Turin.", "Turin", datetime(2021, 9, 1, tzinfo=UTC), None),
        ):
            await agent.facts.add(
                text, subject="Ada", relation="LIVES_IN", object=object_, valid_at=since, invalid_at=until
            )
        await agent.facts.add_fact("Ada likes tea.", subject="Ada", object_="tea", state="proposed")
        now, then = [
            (await client.get(where, params={"day": day, "format": "json"})).json()
            for day in ("", str(datetime(2016, 1, 1).toordinal()))
        ]
        page = await client.get(where)
        odd = [(await client.get(where, params={"day": day})).status_code for day in ("x", "-4", "9" * 12)]

    def shown(twin: dict[str, Any]) -> set[str]:
        return {edge["text"] for edge in twin["edges"] if edge["is_shown"]}

    assert "connect nothing yet" in text_of(empty.text)
    assert shown(now) == {"Ada lives in Turin."} and shown(then) == {"Ada lived in Genoa."}
    assert [(one["x"], one["y"]) for one in now["nodes"]] == [(one["x"], one["y"]) for one in then["nodes"]]
    assert {one["name"] for one in now["nodes"]} == {"Ada", "Genoa", "Turin"}
    for edge in now["edges"]:
        assert page.text.count(f"/why?of={edge['id']}") == 2
    assert "hidden><td" in page.text and odd == [200] * 3
