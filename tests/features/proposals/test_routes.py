"""Proposals over HTTP, on the page and on the command line: listed, shown, approved, refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.library.agent import AsyncAgentById
from tests.server.routed import new_agent, routed
from tests.support.library import open_sync
from tests.support.programs import run_inside
from tests.ui.browser import dashboard, text_of

WHY = {"reason": "It is <b>better</b>.", "evidence": "they said so"}


async def propose(agent: AsyncAgentById, *texts: str) -> None:
    """Have `propose_change` called by hand, for each of these values of the block `policy`, which is protected."""
    await agent.blocks.create("policy", "Be kind.")
    await agent.proposals.protect("policy")
    await agent.tools.attach("propose_change")
    for text in texts:
        await agent.tools.run("propose_change", {"label": "policy", "new_value": text, **WHY})


async def test_proposals_are_decided_over_http() -> None:
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}/proposals"
        await propose(server.library.agent_of(agent["id"]), "Be fair.", "Be cruel.", "Be brief.")
        listed = await server.get(path, state="open")
        of_all = await server.get("/v1/proposals", state="open")
        refused = await server.post(f"{path}/2/refuse", {"reason": "Never."})
        approved = await server.post(f"{path}/1/approve", {})

        assert [one["number"] for one in listed] == [3, 2, 1]
        assert of_all == listed
        assert (listed[2]["diff"], listed[2]["reason"]) == ("@@ -1 +1 @@\n-Be kind.\n+Be fair.", WHY["reason"])
        assert (refused["state"], refused["decision"]) == ("refused", "Never.")
        assert (approved["state"], approved["new_value"]) == ("approved", "Be fair.")
        assert await server.get(f"{path}/1") == approved
        assert [one["number"] for one in await server.get(path, before=3)] == [2, 1]
        assert (await server.refused("POST", f"{path}/1/approve"))[0] == 409
        assert (await server.refused("POST", f"{path}/3/approve"))[0] == 409  # the block was changed meanwhile
        assert (await server.refused("GET", f"{path}/9"))[0] == 404
        block = await server.get(f"/v1/agents/{agent['id']}/core-memory/blocks/policy")
        assert (block["value"], block["metadata"]) == ("Be fair.", {"protected": True})
        block = await server.post(f"{path}/protect", {"label": "policy", "protected": False})
        assert block["metadata"] == {}


async def test_an_agent_gets_a_companion_that_reflects_over_http() -> None:
    async with routed() as server:
        path = f"/v1/agents/{(await new_agent(server))['id']}/companion"
        made = await server.post(path, {"kind": "reflection"})

        assert (made["kind"], made["turns"]) == ("reflection", 0)
        assert (await server.refused("POST", path, {"kind": "other"}))[0] == 422


async def test_proposals_are_decided_on_the_page() -> None:
    async with dashboard() as (client, library):
        agent = await library.create_agent("ann")
        where = f"/agents/{agent.id}/proposals"
        empty = text_of((await client.get(where)).text)
        await propose(agent, "Be fair.", "Be cruel.")
        page = (await client.get(where)).text
        after = text_of((await client.post(f"{where}/2/refuse", data={"reason": "Never."})).text)
        await client.post(f"{where}/1/approve")
        wrong = await client.post(f"{where}/1/approve")
        blocks = await client.post(f"{where}/protect", data={"label": "human", "on": "yes"})
        value = (await agent.blocks.get("policy")).value
        await agent.companion.enable(kind="reflection")
        memory = text_of((await client.get(f"/agents/{agent.id}/memory")).text)

    assert "only people can change it" in memory and "reads what failed, and proposes changes after" in memory
    assert "Nothing is waiting for you." in empty
    assert "+Be fair." in text_of(page) and "&lt;b&gt;better" in page and "<b>better" not in page
    assert "“policy” stays as it is." in after and "Never." in after
    assert value == "Be fair."
    assert "approved already" in wrong.text
    assert "Only people can change “human” now." in text_of(blocks.text)


def test_proposals_are_decided_on_the_command_line(tmp_path: Path) -> None:
    def proposal(*words: str) -> Any:
        done = run_inside(tmp_path, *words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    with open_sync(tmp_path / "perdure.db") as store:
        agent = store.create_agent("ann", tools=["propose_change"])
        agent.blocks.create("policy", "Be kind.")
    protected = proposal("memory", "protect", "policy")
    with open_sync(tmp_path / "perdure.db") as store:
        for text in ("Be fair.", "Be cruel."):
            arguments = {"label": "policy", "new_value": text, **WHY}
            store.agent("ann").tools.run("propose_change", arguments)
    listed = proposal("proposal", "list")
    waits = run_inside(tmp_path, "proposal", "show", "1", "ann")
    refused = proposal("proposal", "refuse", "2", "--reason", "Never.")
    approved = proposal("proposal", "approve", "1", "ann")
    shown = run_inside(tmp_path, "proposal", "show", "1")
    again = run_inside(tmp_path, "proposal", "approve", "1")
    free = proposal("memory", "protect", "policy", "--off")
    companion = proposal("companion", "on", "--reflects")
    stays = run_inside(tmp_path, "companion", "on")

    assert "`perdure proposal approve 1 ann` applies it, `perdure proposal refuse 1 ann` does not" in waits.stderr
    assert (protected["protected"], free["protected"]) == (True, False)
    assert [(one["number"], one["agent"]) for one in listed] == [(2, "ann"), (1, "ann")]
    assert (refused["state"], refused["decision"], approved["state"]) == ("refused", "Never.", "approved")
    assert "+ Be fair." in shown.stdout and WHY["reason"] in shown.stdout
    assert again.returncode == 1 and "approved already" in again.stderr
    assert [one["number"] for one in proposal("proposal", "list", "ann", "--all")] == [2, 1]
    assert proposal("proposal", "list") == []
    assert companion["kind"] == "reflection"
    assert "reads what failed of ann" in stays.stdout and "was one that reflects, and stays so" in stays.stderr
