"""What a conversation costs."""

from __future__ import annotations

from perdure.core.ids import ConversationId
from perdure.features.costs.ledger import CostLedger
from perdure.server.wire.fields import ConversationOrDefault
from perdure.server.wire.http import Json, Limit, Router, ThisAgent, json_answer

router = Router(tags=["agents"])


@router.get("/v1/agents/{agent_id}/context/costs")
async def list_costs(
    agent: ThisAgent, conversation_id: ConversationOrDefault | None = None, limit: Limit = 1_000
) -> Json[CostLedger]:
    """Get what the newest requests of a conversation cost, by default the agent's first, and its summaries: tokens,
    cache use and price of each part, and what broke a prefix. Not part of Letta's API."""
    conversation = None if conversation_id in (None, "default") else ConversationId(str(conversation_id))
    ledger = await agent.costs(conversation=conversation, limit=limit or 1_000)
    return json_answer(ledger.to_dict())
