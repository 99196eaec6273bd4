"""The sources of memory over HTTP: listed, shown, and taken back."""

from __future__ import annotations

from perdure.testing import calls, says
from tests.server.routed import new_agent, routed

ORDER = "Bank account: DE99 6666"


async def test_what_came_from_a_tool_is_listed_and_taken_back() -> None:
    """A dry run changes nothing; undoing brings it back; what names no source is refused."""
    script = (calls("run_code", code="1"), calls("memory_insert", label="human", new_string=ORDER), says("Noted."))
    async with routed(*script) as server:
        agent = await new_agent(
            server, memory_blocks=[{"label": "human", "value": "Ada"}], tools=["run_code", "memory_insert"]
        )
        path = f"/v1/agents/{agent['id']}"
        await server.post(f"{path}/messages", {"messages": [{"role": "user", "content": "Compute."}]})

        (source,) = [one for one in await server.get(f"{path}/memory-sources") if one["label"] == "tool"]
        (write,) = await server.get(f"{path}/memory-sources/writes", source=source["source"])
        dry = await server.post(f"{path}/memory-sources/revert", {"source": source["source"], "dry_run": True})
        assert (source["blocks"], write["id"], write["stands"]) == (1, dry["writes"][0], True)
        assert ORDER in (await server.get(f"{path}/core-memory/blocks/human"))["value"]

        done = await server.post(f"{path}/memory-sources/revert", {"source": source["source"]})
        assert (done["blocks"], done["conflicts"]) == (1, [])
        assert (await server.get(f"{path}/core-memory/blocks/human"))["value"] == "Ada"
        await server.post(f"{path}/undo", {"number": done["correction"]})
        assert ORDER in (await server.get(f"{path}/core-memory/blocks/human"))["value"]
        again = await server.post(f"{path}/memory-sources/revert-writes", {"writes": [write["id"]]})
        assert again["writes"] == [write["id"]]

        for body in ({}, {"source": "elsewhere"}):
            assert (await server.refused("POST", f"{path}/memory-sources/revert", body))[0] == 422
        bad = {"writes": ["passage-1"]}
        assert (await server.refused("POST", f"{path}/memory-sources/revert-writes", bad))[0] == 422
        assert (await server.refused("GET", f"{path}/memory-sources/writes"))[0] == 422
