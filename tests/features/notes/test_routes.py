"""Notes over HTTP: each kind written, found, changed, put away, deleted; wrong values refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from perdure.core.ids import AgentId, PassageId
from tests.features.notes.examples import KINDS, fields_of, title_of
from tests.server.routed import new_agent, routed

NOBODY = "agent-00000000-0000-4000-8000-000000000000"
NOTHING = "passage-00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_note_of_each_kind_is_written_read_found_and_listed(kind: str) -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/notes"
        body = {"kind": kind, "title": title_of(kind), "fields": fields_of(kind), "tags": ["shop"]}
        made = await server.post(path, body)
        await server.post(path, {"kind": "doc", "title": "another", "fields": {"text": "Something else."}})
        same = {name: made[name] for name in made.keys() - {"correction"}}
        last = list(fields_of(kind))[-1]

        assert {name: made[name] for name in body} == body
        assert list(made["fields"]) == list(body["fields"])
        assert made["text"].startswith(f"# {title_of(kind)}\n\n## ")
        assert not made["is_archived"] and made["changed_at"] <= made["created_at"]
        assert await server.get(f"{path}/{made['id']}") == same
        assert same in await server.get(path, kind=kind)
        assert len(await server.get(path)) == 2
        best = (await server.get(f"{path}/search", query=f"{kind} {last} text", kind=kind))[0]
        assert {name: best[name] for name in same} == same and best["score"] > 0


async def test_a_note_is_changed_and_deleted_and_both_are_undone() -> None:
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/notes"
        fields = {"happened": "it fell", "cause": "the wind", "solution": "a rope"}
        note = await server.post(path, {"kind": "error", "title": "the tent", "fields": fields})
        edited = await server.patch(
            f"{path}/{note['id']}", {"title": "our tent", "fields": {"cause": "", "solution": "two"}}
        )
        same = await server.patch(f"{path}/{note['id']}", {})
        gone = await server.delete(f"{path}/{note['id']}")

        assert (edited["title"], edited["fields"]) == ("our tent", {"happened": "it fell", "solution": "two"})
        assert same["fields"] == edited["fields"]
        assert (await server.refused("GET", f"{path}/{note['id']}"))[0] == 404
        await server.post(f"/v1/agents/{agent['id']}/undo", {"number": gone["correction"]})
        assert (await server.get(f"{path}/{note['id']}"))["fields"] == edited["fields"]
        await server.post(f"/v1/agents/{agent['id']}/undo", {"number": same["correction"]})
        await server.post(f"/v1/agents/{agent['id']}/undo", {"number": edited["correction"]})
        assert (await server.get(f"{path}/{note['id']}"))["fields"] == fields
        await server.post(f"/v1/agents/{agent['id']}/undo", {"number": note["correction"]})
        assert await server.get(path) == []


async def test_an_archived_note_is_found_by_those_who_ask_for_it() -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/notes"
        note = await server.post(path, {"kind": "intel", "title": "the port", "fields": {"finding": "It is 8283."}})
        away = await server.post(f"{path}/{note['id']}/archive", None)

        assert away["is_archived"]
        assert await server.get(path) == await server.get(f"{path}/search", query="8283") == []
        assert await server.get(path, archived="true") == [away]
        assert (await server.get(f"{path}/search", query="8283", archived="true"))[0]["id"] == note["id"]
        back = await server.post(f"{path}/{note['id']}/restore", None)
        assert not back["is_archived"]
        assert await server.get(path) == [back]


async def test_notes_that_nobody_changed_for_long_are_reviewed_and_kept() -> None:
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/notes"
        ids = {
            kind: (await server.post(path, {"kind": kind, "title": kind, "fields": fields_of(kind)}))["id"]
            for kind in ("decision", "plan", "handoff")
        }
        assert await server.get(f"{path}/review") == []
        archival = server.library.agent_of(AgentId(agent["id"]))
        for kind, id_ in ids.items():
            at = server.library.app.ports.clock.now() - timedelta(days=20)
            metadata = {"kind": kind, "changed_at": at.isoformat()}
            await archival.update_passage(PassageId(id_), metadata=metadata)

        assert [one["kind"] for one in await server.get(f"{path}/review")] == ["plan", "handoff"]
        assert [one["kind"] for one in await server.get(f"{path}/review", days="20")] == ["decision", "plan", "handoff"]
        assert await server.get(f"{path}/review", days="21") == []
        await server.post(f"{path}/{ids['plan']}/keep", None)
        assert [one["kind"] for one in await server.get(f"{path}/review", limit="1")] == ["handoff"]


async def test_the_kinds_are_described() -> None:
    async with routed() as server:
        kinds = await server.get(f"/v1/agents/{(await new_agent(server))['id']}/notes/kinds")

    assert [one["name"] for one in kinds] == list(KINDS)
    assert kinds[0]["fields"]["prevention"] == "what prevents it the next time"


async def test_pages_hold_each_note_once_newest_first() -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/notes"
        made = [
            (await server.post(path, {"kind": "doc", "title": f"{number}", "fields": {"text": "x"}}))["id"]
            for number in range(5)
        ]
        first = [one["id"] for one in await server.get(path, limit="2")]
        rest = [one["id"] for one in await server.get(path, after=first[-1])]

    assert first + rest == made[::-1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "poem"}, "kind is 'poem'"),
        ({"title": ""}, "title is ''"),
        ({"title": "two\nlines"}, "control characters"),
        ({"title": "bell \x07"}, "control characters"),
        ({"title": "x" * 201}, "201 characters"),
        ({"fields": {}}, "field 'happened' is empty"),
        ({"fields": {"happened": " \n"}}, "field 'happened' is empty"),
        ({"fields": {"happened": "x", "mood": "y"}}, "'mood' is not a field"),
        ({"fields": {"happened": "x\x00"}}, "control character"),
        ({"fields": {"happened": "x" * 20_001}}, "20,001 characters"),
        ({"fields": {"happened": "x" * 1_000_000}}, "1,000,000 characters"),
        ({"fields": "text"}, "fields"),
        ({"fields": {"happened": 3}}, "happened"),
        ({"tags": ["decision"]}, "tag 'decision'"),
        ({"tags": "a"}, "tags"),
    ],
)
async def test_a_note_that_is_wrong_is_refused_whole(change: dict[str, object], says: str) -> None:
    async with routed() as server:
        agent = (await new_agent(server))["id"]
        path = f"/v1/agents/{agent}/notes"
        right = {"kind": "error", "title": "the tent", "fields": {"happened": "it fell"}}
        status, detail = await server.refused("POST", path, right | change)

        assert status == 422 and says in detail, detail
        assert len(detail) < 500
        assert await server.get(path) == []
        note = await server.post(path, right)
        if "kind" not in change and "tags" not in change and change.get("fields") != {}:
            status, _ = await server.refused("PATCH", f"{path}/{note['id']}", change)
            assert status == 422
        assert (await server.get(f"{path}/{note['id']}"))["text"] == note["text"]


async def test_what_is_not_there_is_not_found() -> None:
    """No such agent, no such note, a passage that is not a note, a note of somebody else."""
    async with routed() as server:
        agent, other = await new_agent(server), await new_agent(server, "ben")
        passage = await server.library.agent_of(AgentId(agent["id"])).archive("a text", tags=["note", "error"])
        body = {"kind": "doc", "title": "mine", "fields": {"text": "x"}}
        foreign = await server.post(f"/v1/agents/{other['id']}/notes", body)
        for id_ in (NOTHING, passage.id, foreign["id"]):
            where = f"/v1/agents/{agent['id']}/notes/{id_}"
            for method, path in (("GET", where), ("DELETE", where), *(("POST", f"{where}/{one}") for one in ACTIONS)):
                assert (await server.refused(method, path))[0] == 404, path
            assert (await server.refused("PATCH", where, {"title": "new"}))[0] == 404
        nobody = f"/v1/agents/{NOBODY}/notes"
        for path in (nobody, f"{nobody}/review", f"{nobody}/{NOTHING}"):
            assert (await server.refused("GET", path))[0] == 404, path
        assert (await server.refused("GET", f"{nobody}/search", query="x"))[0] == 404
        assert (await server.refused("POST", nobody, body))[0] == 404
        assert (await server.refused("GET", f"/v1/agents/{agent['id']}/notes", kind="poem"))[0] == 422
        assert (await server.refused("GET", f"/v1/agents/{agent['id']}/notes/x"))[0] == 422
        assert await server.get(f"/v1/agents/{agent['id']}/notes") == []


ACTIONS = ("archive", "restore", "keep")


@pytest.mark.uses("access")
def test_reading_needs_a_key_that_may_read_and_writing_one_of_a_user() -> None:
    """On the routes and on the page."""
    from perdure.features.access.scopes import rule_of

    for path in (f"/v1/agents/{NOBODY}/notes", f"/agents/{NOBODY}/notes"):
        for more in ("", f"/{NOTHING}", f"/{NOTHING}/archive"):
            rules = {method: rule_of(method, path + more) for method in ("GET", "POST", "PATCH", "DELETE")}
            assert [rule.scope for rule in rules.values() if rule] == ["read-only", "user", "user", "user"]


async def test_the_document_names_the_kinds_that_a_list_takes_and_an_empty_query_finds_the_newest() -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/notes"
        note = await server.post(path, {"kind": "doc", "title": "the tent", "fields": {"text": "It is green."}})
        paths = (await server.get("/openapi.json"))["paths"]

        for route in ("notes", "notes/search"):
            parameters = {one["name"]: one for one in paths[f"/v1/agents/{{agent_id}}/{route}"]["get"]["parameters"]}
            assert parameters["kind"]["schema"]["enum"] == [*KINDS]
        assert "pattern" not in parameters["query"]["schema"]
        assert [one["id"] for one in await server.get(f"{path}/search", query="")] == [note["id"]]
