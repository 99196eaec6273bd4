"""Facts over HTTP: listed, searched, added, corrected, forgotten; rules and settings."""

from __future__ import annotations

from typing import Any

from tests.server.routed import Routed, new_agent, routed


async def add(server: Routed, agent_id: str, text: str, **fields: Any) -> dict[str, Any]:
    """The answer to a new fact."""
    answer: dict[str, Any] = await server.post("/v1/facts", {"agent_id": agent_id, "text": text, **fields})
    return answer


async def test_a_fact_is_corrected_forgotten_and_restored() -> None:
    """Its history has each version with author and reason, and so has `why`."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        fact = await add(server, agent_id, "Ada lives in Turin.", subject="Ada", relation="LIVES_IN", object="Turin")
        path = f"/v1/facts/{fact['id']}"
        edited = await server.patch(path, {"text": "Ada lives in Milan.", "valid_at": "2026-05-03"})
        ended = await server.patch(path, {"invalid_at": "2026-08-01T00:00:00Z"})
        await server.http.delete(path)
        gone = await server.get("/v1/facts", agent_id=agent_id)
        restored = await server.post(f"{path}/restore", {})
        history = await server.get(f"{path}/history")

        assert (edited["text"], edited["valid_at"]) == ("Ada lives in Milan.", "2026-05-03T00:00:00.000000Z")
        assert (ended["valid_at"], ended["invalid_at"]) == (edited["valid_at"], "2026-08-01T00:00:00.000000Z")
        assert (gone, restored["expired_at"]) == ([], None)
        assert await server.get(path) == restored
        assert (await server.patch(path, {"invalid_at": None}))["invalid_at"] is None
        assert [(one["change"], one["author"]) for one in history["versions"]] == [
            ("add", "person"),
            ("edit", "person"),
            ("edit", "person"),
            ("delete", "person"),
            ("restore", "person"),
        ]
        assert [one["text"] for one in history["sources"]] == ["Ada lives in Turin."]
        assert await server.get("/v1/why", of=fact["id"][:13]) == await server.get(f"{path}/history")
        other = await new_agent(server, "ben")
        assert (await server.refused("GET", "/v1/why", of=fact["id"], agent_id=other["id"]))[0] == 404


async def test_lists_have_pages_and_conditions() -> None:
    """By entity, time and relation; a search has scores; entities are listed with their facts."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        assert await server.get("/v1/facts", agent_id=agent_id) == []
        for year in (2019, 2020, 2021):
            since, until = f"{year}-01-01T00:00:00Z", f"{year + 1}-01-01T00:00:00Z"
            text = f"Ada played chess in {year}."
            await add(server, agent_id, text, subject="Ada", relation="PLAYED", valid_at=since, invalid_at=until)
        newest = await server.get("/v1/facts", agent_id=agent_id, limit=2)
        rest = await server.get("/v1/facts", agent_id=agent_id, limit=2, after=newest[1]["id"])
        at = await server.get("/v1/facts", agent_id=agent_id, at="2020-06-01", entity="Ada", relation="PLAYED")
        found = await server.get("/v1/facts/search", agent_id=agent_id, query="chess 2021", limit=1)
        entities = await server.get("/v1/entities", agent_id=agent_id, order="desc", limit=1)

        assert [one["text"][-5:-1] for one in (*newest, *rest)] == ["2021", "2020", "2019"]
        assert [one["text"] for one in at] == ["Ada played chess in 2020."]
        assert found[0]["text"] == "Ada played chess in 2021." and found[0]["score"] > 0
        assert await server.get("/v1/facts", agent_id=agent_id, as_of="2019-01-01") == []
        assert [(one["name"], one["fact_count"]) for one in entities] == [("Memory", 3)]
        assert await server.get(f"/v1/entities/{entities[0]['id']}") == entities[0]
        assert (await server.refused("GET", "/v1/facts", agent_id=agent_id, entity="Eve"))[0] == 404
        assert (await server.refused("GET", "/v1/facts", agent_id=agent_id, at="soon"))[0] == 422


async def test_entities_are_changed_merged_and_split() -> None:
    """A merged one gives its name; an unknown one, and itself, is refused."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        for name in ("Ada", "Ada Lovelace"):
            await add(server, agent_id, f"{name} plays chess.", subject=name, relation="PLAYS", object="chess")
        ids = {one["name"]: one["id"] for one in await server.get("/v1/entities", agent_id=agent_id)}
        path = f"/v1/entities/{ids['Ada Lovelace']}"
        merged = await server.post(f"{path}/merge", {"into": ids["Ada"]})
        assert (merged["id"], merged["aliases"]) == (ids["Ada"], ["Ada Lovelace"])
        assert (await server.post(f"{path}/split", {}))["name"] == "Ada Lovelace"
        changed = await server.patch(path, {"name": "Countess", "aliases": []})
        assert (changed["name"], changed["aliases"]) == ("Countess", [])
        assert (await server.refused("POST", f"{path}/split"))[0] == 409
        unknown = "entity-00000000-0000-4000-8000-000000000000"
        for into, status in ((ids["Ada Lovelace"], 422), (unknown, 404)):
            assert (await server.http.post(f"{path}/merge", json={"into": into})).status_code == status


async def test_rules_and_settings() -> None:
    """Of the agent's graph; the agent's own setting is a field of the agent."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        assert (await server.get("/v1/facts/settings", agent_id=agent_id))["graph_id"] is None
        rule = await server.post("/v1/facts/rules", {"agent_id": agent_id, "text": "salary"})
        assert await server.get("/v1/facts/rules", agent_id=agent_id) == [rule]
        lifted = await server.http.delete(f"/v1/facts/rules/{rule['number']}", params={"agent_id": agent_id})
        assert (lifted.status_code, await server.get("/v1/facts/rules", agent_id=agent_id)) == (204, [])
        paused = await server.patch("/v1/facts/settings", {"agent_id": agent_id, "paused": True})
        assert (paused["settings"]["paused"], paused["facts"]) == (True, 0)
        wrong = {"agent_id": agent_id, "fact_types": {"EMPLOYMENT": "Person"}}
        assert (await server.refused("PATCH", "/v1/facts/settings", wrong))[0] == 422

        for facts in (False, {"capture": "ask"}):
            assert (await server.patch(f"/v1/agents/{agent_id}", {"facts": facts}))["facts"] == facts
        status, detail = await server.refused("PATCH", f"/v1/agents/{agent_id}", {"facts": {"capture": "maybe"}})
        assert (status, "facts.capture is 'maybe'" in detail) == (422, True)


async def test_what_is_derived_from_facts() -> None:
    """A profile within a budget, a timeline by tags and times, one text with sources, and communities."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        assert (await server.get("/v1/profiles", agent_id=agent_id))["slots"] == {}
        turin = await add(server, agent_id, "The user lives in Turin.", relation="LIVES_IN", object="Turin")
        await server.patch(f"/v1/facts/{turin['id']}", {"valid_at": "2026-03-01", "invalid_at": "2026-05-01"})
        oslo = await add(server, agent_id, "The user lives in Oslo.", relation="LIVES_IN", object="Oslo")
        await server.patch(f"/v1/facts/{oslo['id']}", {"valid_at": "2026-05-01"})
        await add(server, agent_id, "The user likes tea.", relation="LIKES", object="tea")
        graph_id = (await server.get("/v1/facts/settings", agent_id=agent_id))["graph_id"]

        profile = await server.get("/v1/profiles", graph_id=graph_id)
        assert profile["slots"] == {"basic_info.location": ["Oslo"], "interest.likes": ["tea"]}
        assert profile["entries"][0]["fact_id"] == oslo["id"]
        small = await server.get("/v1/profiles", agent_id=agent_id, budget_tokens=profile["tokens"] - 1)
        assert (small["left_out"], small["tokens"] < profile["tokens"]) == (1, True)
        moves = await server.get("/v1/facts/timeline", agent_id=agent_id, tag="LIVES_IN", since="2026-04-01")
        assert [(one["kind"], one["fact_id"]) for one in moves] == [("end", turin["id"]), ("begin", oslo["id"])]
        newest = await server.get("/v1/facts/timeline", agent_id=agent_id, order="desc", limit=1)
        assert [one["tags"] for one in newest] == [["LIKES"]]
        context = await server.get("/v1/facts/context", agent_id=agent_id, query="tea", budget_tokens=200)
        assert "[1]" in context["text"] and context["tokens"] <= 200
        assert context["facts"][0]["sources"]
        (community,) = await server.get("/v1/facts/communities", agent_id=agent_id)
        assert community["size"] == len(community["members"]) == 4
        assert await server.get("/v1/facts/communities", agent_id=agent_id, query="zebra") == []
        for path in ("/v1/profiles", "/v1/facts/context"):
            assert (await server.refused("GET", path, agent_id=agent_id, budget_tokens=0))[0] == 422
        status, detail = await server.refused("GET", "/v1/profiles")
        assert (status, "name an agent" in detail) == (422, True)
        assert (await server.refused("GET", "/v1/profiles", agent_id=agent_id, graph_id=graph_id))[0] == 422


async def test_facts_fade_and_come_back() -> None:
    """A dry run only lists them; facts of several states, sources and scopes are listed by these."""
    async with routed() as server:
        of_agent = {"agent_id": (await new_agent(server))["id"]}
        await add(server, of_agent["agent_id"], "Ada likes green tea.", subject="Ada", relation="LIKES", object="tea")
        await add(server, of_agent["agent_id"], "Ada likes tea.", subject="Ada", relation="LIKES", object="tea")
        planned = await server.post("/v1/facts/tidy", of_agent | {"dry_run": True})
        assert len(await server.get("/v1/facts", **of_agent)) == 2
        done = await server.post("/v1/facts/tidy", of_agent)
        assert [(one["text"], one["reason"]) for one in done] == [("Ada likes tea.", "duplicate")]
        assert [one["id"] for one in planned] == [one["id"] for one in done]
        archived = await server.get("/v1/facts", state="archived", **of_agent)
        assert [one["id"] for one in archived] == [done[0]["id"]]
        assert len(await server.get("/v1/facts", state=["active", "archived"], **of_agent)) == 2
        assert [one["id"] for one in await server.post("/v1/facts/tidy/undo", of_agent)] == [done[0]["id"]]

        assert len(await server.get("/v1/facts", trust=["user", "web"], **of_agent)) == 2
        assert await server.get("/v1/facts", trust="web", **of_agent) == []
        assert await server.get("/v1/facts", scope="user_id=ann", **of_agent) == []
        assert (await server.refused("GET", "/v1/facts", scope="ann", **of_agent))[0] == 422
        assert (await server.refused("POST", "/v1/facts/tidy", {"dry_run": True}))[0] == 422


async def test_passages_fade_and_come_back() -> None:
    """Lists and searches find them by their states; a list without states has all of them, as clients expect."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        path, of_agent = f"/v1/agents/{agent_id}/archival-memory", {"agent_id": agent_id}
        (kept,) = await server.post(path, {"text": "Ada likes green tea."})
        (same,) = await server.post(path, {"text": "Ada likes green tea"})
        (planned,) = await server.post("/v1/facts/tidy", of_agent | {"dry_run": True})
        assert (planned["kind"], planned["id"], planned["into"]) == ("passage", same["id"], kept["id"])
        assert [one["id"] for one in await server.post("/v1/facts/tidy", of_agent)] == [same["id"]]

        assert await server.get(path) == [kept, same]
        assert await server.get(path, state="archived") == [same]
        archive = f"/v1/archives/{kept['archive_id']}/passages"
        assert [len(await server.get(archive, **where)) for where in ({}, {"state": ["active", "faded"]})] == [2, 1]
        for state, expected in ((None, [kept["id"]]), ("archived", [same["id"]])):
            where = {} if state is None else {"state": state}
            found = await server.get(f"{path}/search", query="tea", **where)
            assert [one["id"] for one in found["results"]] == expected
            body = {"query": "tea", **of_agent} | ({} if state is None else {"states": [state]})
            assert [one["passage"]["id"] for one in await server.post("/v1/passages/search", body)] == expected
        assert (await server.refused("GET", path, state="gone"))[0] == 422
        assert await server.post(f"/v1/passages/{same['id']}/restore", {}) == same
        assert await server.get(path, state="archived") == []
        assert await server.post("/v1/facts/tidy/undo", of_agent) == []


async def test_nothing_is_remembered_about_an_entity() -> None:
    """The rule names it; an entity that is not there is refused."""
    async with routed() as server:
        agent_id = (await new_agent(server))["id"]
        fact = await add(server, agent_id, "Ada likes tea.", subject="Ada", relation="LIKES", object="tea")
        rule = await server.post("/v1/facts/rules", {"agent_id": agent_id, "entity": "Ada"})
        by_id = await server.post("/v1/facts/rules", {"agent_id": agent_id, "entity": fact["subject_id"]})

        assert (rule["entity"], by_id["entity"]) == ("Ada", "Ada")
        assert await server.get("/v1/facts/rules", agent_id=agent_id) == [rule, by_id]
        wrong = {"agent_id": agent_id, "entity": "Eve"}
        assert (await server.refused("POST", "/v1/facts/rules", wrong))[0] == 404
