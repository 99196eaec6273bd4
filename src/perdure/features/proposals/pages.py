"""The page with the changes of an agent's memory that wait for a person."""

from __future__ import annotations

from starlette.requests import Request

from perdure.core.errors import InvalidInput
from perdure.core.text.reprs import attributes
from perdure.features.proposals.values import REASON_CHARS, Proposal
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.home import agent_frame
from perdure.ui.render import Data, Notice, Pages, agent_id_of, form_of, is_number

DECIDED_SHOWN, OPEN_SHOWN = 20, 100

pages = Pages()


@pages.get("/agents/{agent_id}/proposals", "proposals.html", is_live=True)
async def proposals(request: Request, library: AsyncPerdure) -> Data:
    """The proposals that wait, and the newest that were decided; and which blocks only people change."""
    agent = await library.all_agents.resolve(agent_id_of(request))
    own = library.agent_of(agent.id)
    newest = await own.proposals.list(state=None, limit=DECIDED_SHOWN)
    return agent_frame(agent, "Proposals", "proposals") | {
        "open": [_shape(proposal) for proposal in await own.proposals.list(limit=OPEN_SHOWN)],
        "decided": [_shape(one) for one in newest if one.state != "open"],
        "blocks": [attributes(block, "label", "is_protected") for block in await own.blocks.list()],
        "reason_chars": REASON_CHARS,
    }


def _shape(one: Proposal) -> Data:
    """A proposal as the page shows it."""
    names = ("number", "label", "diff", "reason", "evidence", "state", "run_id", "created_at", "decision")
    return attributes(one, *names, "decided_at", "decided_by")


@pages.post("/agents/{agent_id}/proposals/{number}/approve", shows=proposals)
async def approve(request: Request, library: AsyncPerdure) -> Notice:
    """Apply a proposal."""
    one = await library.agent_of(agent_id_of(request)).proposals.approve(_number_of(request))
    return Notice(f"“{one.label}” is changed: it has version {one.version}.")


@pages.post("/agents/{agent_id}/proposals/{number}/refuse", shows=proposals)
async def refuse(request: Request, library: AsyncPerdure) -> Notice:
    """Refuse a proposal."""
    reason = (await form_of(request)).get("reason", "")
    one = await library.agent_of(agent_id_of(request)).proposals.refuse(_number_of(request), reason)
    return Notice(f"“{one.label}” stays as it is.")


@pages.post("/agents/{agent_id}/proposals/protect", shows=proposals)
async def protect(request: Request, library: AsyncPerdure) -> Notice:
    """Let only people change a block, or agents too."""
    form = await form_of(request)
    block = await library.agent_of(agent_id_of(request)).proposals.protect(
        form.get("label", ""), on=form.get("on") == "yes"
    )
    return Notice(f"{'Only people can change' if block.is_protected else 'The agent may change'} “{block.label}” now.")


def _number_of(request: Request) -> int:
    """The number in the path. Raises: InvalidInput."""
    number: str = request.path_params["number"]
    if not is_number(number):
        raise InvalidInput(f"{number!r:.40} is not a proposal's number")
    return int(number)
