"""An agent's secrets over the wire: taken, named, never shown."""

from __future__ import annotations

from typing import Any

import pytest
from letta_client.types import AgentState

from tests.server.routed import MODEL, Routed, new_agent, routed

CANARY = "canary-5f1d7c0a"


async def values_of(server: Routed, agent: Any) -> dict[str, str]:
    """name -> value, from behind the routes."""
    from perdure.domain.secrets import resolve_environment

    app = server.library.app
    return await app.store.read(resolve_environment, agent["id"], {}, cipher=app.ports.cipher)


@pytest.mark.parametrize("field", ["secrets", "tool_exec_environment_variables"])
async def test_an_agent_is_made_with_secrets(field: str) -> None:
    """By the new name of the field and by the old one; both tell the names, with empty values."""
    async with routed() as server:
        fields: dict[str, Any] = {field: {"TOKEN": CANARY, "A": "1"}}
        made = await new_agent(server, **fields)
        state = AgentState.model_validate(made)
        listed = await server.get(f"/v1/agents/{made['id']}/secrets")
        whole = (await server.http.get(f"/v1/agents/{made['id']}")).text

        assert [(secret.key, secret.value) for secret in state.secrets or []] == [("A", ""), ("TOKEN", "")]
        assert state.tool_exec_environment_variables == state.secrets
        assert listed == made["secrets"]
        assert await values_of(server, made) == {"TOKEN": CANARY, "A": "1"}
        assert CANARY not in whole


async def test_a_change_gives_the_whole_new_set() -> None:
    """What is missing goes, what is sent back as it was shown stays, null changes nothing."""
    async with routed() as server:
        made = await new_agent(server, secrets={"KEPT": CANARY, "GONE": "1"})
        path = f"/v1/agents/{made['id']}"
        await server.patch(path, {"secrets": {"KEPT": "", "NEW": "2"}})
        assert await values_of(server, made) == {"KEPT": CANARY, "NEW": "2"}
        shown = await server.patch(path, {"name": "bob", "secrets": None})
        assert await values_of(server, made) == {"KEPT": CANARY, "NEW": "2"}
        await server.patch(path, {"secrets": shown["secrets"]})
        assert await values_of(server, made) == {"KEPT": CANARY, "NEW": "2"}
        await server.patch(path, {"tool_exec_environment_variables": {}})

        assert await values_of(server, made) == {}


@pytest.mark.parametrize("secrets", [{"A B": CANARY}, {"A": [CANARY]}, {"A": None, "B": CANARY}, CANARY, [CANARY]])
async def test_what_cannot_be_a_secret_is_refused_without_telling_it(secrets: Any) -> None:
    """422, and no agent is made."""
    async with routed() as server:
        answer = await server.http.post("/v1/agents/", json={"model": MODEL, "secrets": secrets})

        assert answer.status_code == 422
        assert CANARY not in answer.text
        assert await server.get("/v1/agents/") == []


async def test_without_a_key_nothing_is_made() -> None:
    """The answer says which setting is missing."""
    async with routed(secret_key="") as server:
        status, detail = await server.refused("POST", "/v1/agents/", {"model": MODEL, "secrets": {"A": CANARY}})

        assert (status, CANARY in detail) == (501, False)
        assert "PERDURE_SECRET_KEY" in detail
        assert await server.get("/v1/agents/") == []
