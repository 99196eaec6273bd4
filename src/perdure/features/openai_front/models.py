"""The models of `/openai/v1`: agents by their names, and the server's own models with memory around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perdure.core.agents import OWN_TAGS, Agent, AgentFilter
from perdure.core.errors import NotFound
from perdure.library.agent import AsyncAgent
from perdure.library.parts.checks import Page
from perdure.library.perdure import AsyncPerdure
from perdure.server.wire.shapes import WireShape

MEMORY = "memory/"
"""How the names of models begin that get memory around them; a handle follows."""
AGENTS_MAX = 1_000


class ModelCard(WireShape):
    """A model as OpenAI's API lists it."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelCards(WireShape):
    """All of them."""

    object: str
    data: list[ModelCard]


async def list_cards(library: AsyncPerdure) -> Sequence[ModelCard]:
    """The agents, newest first, and the models that can be used now; of agents with one name each has its id."""
    agents = await library.all_agents.page(AgentFilter(hidden=False), Page(AGENTS_MAX, ascending=False))
    shown = [agent for agent in agents if not any(tag.startswith(OWN_TAGS) for tag in agent.tags)]
    names = Counter(one.name for one in shown)
    await library.handles.reload()
    own = [_card(one.name if names[one.name] == 1 else one.id, one) for one in shown]
    return [*own, *(_card(f"{MEMORY}{handle}") for handle in library.models)]


async def find_card(library: AsyncPerdure, name: str) -> ModelCard:
    """The agent of this name or id, or the model. Raises: NotFound."""
    if not name.startswith(MEMORY):
        return _card(name, (await find_agent(library, name)).info)
    if library.app.models.find(handle := name.removeprefix(MEMORY)) is None:
        raise library.app.models.not_found(handle)
    return _card(name)


async def find_agent(library: AsyncPerdure, name: str) -> AsyncAgent:
    """The agent of this name or id. Raises: NotFound: there is none, or it is hidden."""
    agent = await library.agent(name)
    if agent.info.hidden and name != agent.id:
        raise NotFound("agent", name)
    return agent


def _card(name: str, agent: Agent | None = None) -> ModelCard:
    """The card of an agent, or of a model with memory."""
    created = 0 if agent is None else int(agent.created_at.timestamp())
    owner = name.split("/")[1] if agent is None else "perdure"
    return ModelCard(id=name, object="model", created=created, owned_by=owner)
