"""Forgetting over HTTP: where a text stands, out of view, back again, and out of the file."""

from __future__ import annotations

from tests.server.routed import new_agent, routed


async def test_a_text_is_found_forgotten_and_brought_back() -> None:
    """Nothing is changed before; the correction is listed, and an undone one is not undone twice."""
    async with routed() as server:
        agent = await new_agent(server, memory_blocks=[{"label": "human", "value": "tea\nthe key is under the pot"}])
        path = f"/v1/agents/{agent['id']}"
        body = {"text": "key is under"}

        found = await server.post(f"{path}/mentions", body)
        forgotten = await server.post(f"{path}/forget", body)
        block = await server.get(f"{path}/core-memory/blocks/human")
        listed = await server.get(f"{path}/corrections")
        undone = await server.post(f"{path}/undo", {})

        assert (found["counts"]["block"], found["in_view"]) == (1, 1)
        assert found["mentions"][0]["name"] == "human"
        assert (forgotten["counts"], forgotten["erased"]) == ({"block": 1}, False)
        assert block["value"] == "tea"
        assert listed == [forgotten["correction"]]
        assert (undone["restored"], undone["conflicts"]) == (1, [])
        assert (await server.get(f"{path}/core-memory/blocks/human"))["value"].endswith("under the pot")
        assert (await server.refused("POST", f"{path}/undo", {"number": 1}))[0] == 404
        assert (await server.refused("POST", f"{path}/forget", {"text": "x"}))[0] == 422


async def test_an_edited_message_is_undone_and_a_text_erased() -> None:
    """The edit of Letta's API is a correction too; what is erased is nowhere found."""
    async with routed() as server:
        agent = await new_agent(server)
        path = f"/v1/agents/{agent['id']}"
        await server.post(f"{path}/messages", {"messages": [{"role": "user", "content": "the key is under the pot"}]})
        [said] = [one for one in await server.get(f"{path}/messages") if one["message_type"] == "user_message"]
        await server.patch(f"{path}/messages/{said['id']}", {"message_type": "user_message", "content": "tea"})

        undone = await server.post(f"{path}/undo", {})
        erased = await server.post(f"{path}/forget", {"text": "key is under", "erase": True})

        assert undone["correction"]["kind"] == "message"
        assert erased["erased"] and erased["correction"] is None
        assert (await server.post(f"{path}/mentions", {"text": "key is under"}))["total"] == 0
