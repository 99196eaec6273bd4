"""Snapshots over HTTP, on pages and on the command line: kept, restored, cloned, loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.server.routed import new_agent, routed
from tests.support.library import open_sync
from tests.support.programs import run_inside
from tests.ui.browser import dashboard, text_of, undo


async def test_snapshots_are_kept_restored_cloned_and_loaded_over_http() -> None:
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        await server.library.agent_of(agent["id"]).send("one")
        kept = await server.post(f"{path}/snapshots", {"note": "here"})
        await server.library.agent_of(agent["id"]).send("two")
        restored = await server.post(f"{path}/snapshots/restore", {"number": kept["number"]})
        clone = await server.post(f"{path}/clone", {"name": "clone"})
        document = await server.get(f"{path}/snapshots/{kept['number']}/export")
        loaded = await server.post("/v1/snapshots/load", {"snapshot": document, "name": "loaded"})

        assert (kept["number"], kept["reason"], kept["note"], kept["waits"]) == (1, "manual", "here", False)
        assert (restored["undo"], restored["hidden"], restored["left"]) == (2, 2, [])
        assert [one["number"] for one in await server.get(f"{path}/snapshots")] == [2, 1]
        assert [one["number"] for one in await server.get(f"{path}/snapshots", before=2)] == [1]
        assert await server.get(f"{path}/snapshots/1") == kept
        for made in (clone, loaded):
            said = await server.library.agent_of(made["agent_id"]).messages()
            assert [one.text for one in said] == ["one", "OK."]
        assert (await server.refused("POST", f"{path}/clone", {"name": "clone"}))[0] == 409
        assert (await server.refused("POST", f"{path}/snapshots/restore", {}))[0] == 422
        assert (await server.refused("POST", f"{path}/snapshots/restore", {"number": 9}))[0] == 404
        back = await server.post(f"{path}/snapshots/restore", {"snapshot": document})
        assert (back["undo"], back["hidden"], back["left"]) == (3, 0, [])
        changed = {**document, "name": "other"}
        assert (await server.refused("POST", "/v1/snapshots/load", {"snapshot": changed}))[0] == 422
        assert (await server.http.delete(f"{path}/snapshots/1")).status_code == 204
        assert (await server.refused("GET", f"{path}/snapshots/1"))[0] == 404


async def test_a_person_goes_back_and_clones_on_the_page_of_a_run() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        await agent.send("one")
        await agent.send("two")
        first = (await agent.steps())[-1]
        here = f"/runs/{first.run_id}"
        page = text_of((await client.get(here)).text)
        back = await client.post(f"{here}/snapshots/back", data={"step": first.id})
        after = [one.text for one in await agent.messages()]
        await undo(client, back)
        undone = [one.text for one in await agent.messages()]
        made = await client.post(f"{here}/snapshots/clone", data={"step": first.id, "name": "bob"})
        taken = await client.post(f"{here}/snapshots/clone", data={"step": first.id, "name": "bob"})
        clone = [one.text for one in await (await library.agent("bob")).messages()]

    assert "Go back to here" in page and "Clone" in page
    assert "2 messages left the view" in text_of(back.text)
    assert (after, undone, clone) == (["one", "OK."], ["one", "OK.", "two", "OK."], ["one", "OK."])
    assert "bob was made" in text_of(made.text)
    assert "exists already" in taken.text


async def test_a_person_keeps_snapshots_on_the_page_of_settings() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        here = f"/agents/{agent.id}/settings/snapshots"
        kept = await client.post(here, data={"note": "before the <b>change</b>"})
        await agent.blocks.update("human", "Ann")
        back = await client.post(f"{here}/restore", data={"number": "1"})
        human = (await agent.blocks.get("human")).value
        made = await client.post(f"{here}/clone", data={"name": "bob"})
        deleted = await client.post(f"{here}/delete", data={"number": "1"})
        wrong = await client.post(f"{here}/restore", data={"number": "x"})

    assert "&lt;b&gt;change" in kept.text and "<b>change" not in kept.text
    assert "The agent is as it was there" in text_of(back.text)
    assert human == ""
    assert "bob was made" in text_of(made.text)
    assert "Snapshot 1 was deleted" in text_of(deleted.text)
    assert "is not a snapshot" in text_of(wrong.text)


def test_snapshots_on_the_command_line(tmp_path: Path) -> None:
    def run(*words: str) -> Any:
        done = run_inside(tmp_path, "agent", *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with open_sync(tmp_path / "perdure.db") as store:
        store.create_agent("ann").send("one \ud83d")
    file = str(tmp_path / "ann.json")
    kept = run("snapshot", "ann", "--note", "here", "--file", file)
    listed = run("snapshots", "ann")
    restored = run("restore", "ann", "1", "--yes")
    of_file = run("restore", "ann", file, "--yes")
    clone = run("clone", "ann", "bob")
    loaded = run("load", file, "--name", "cid")
    wrong = run_inside(tmp_path, "agent", "restore", "ann", "--yes")

    assert (kept["number"], [one["note"] for one in listed]) == (1, ["here"])
    assert (restored["undo"], restored["hidden"], restored["left"]) == (2, 0, [])
    assert (of_file["undo"], of_file["hidden"], of_file["left"]) == (3, 0, [])
    assert (clone["name"], loaded["name"]) == ("bob", "cid")
    assert wrong.returncode != 0 and "--at STEP" in wrong.stderr
