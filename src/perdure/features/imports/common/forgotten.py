"""What agents have forgotten, kept out of what imports bring."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import REDACTED, Redactor
from perdure.core.ids import AgentId
from perdure.core.messages import parts_from_json, parts_to_json
from perdure.core.passages import Passage
from perdure.domain.conversations.importing import ImportedMessage
from perdure.library.perdure import AsyncPerdure


class ForgottenTexts:
    """The texts that agents have forgotten, looked up once for each agent."""

    def __init__(self, library: AsyncPerdure) -> None:
        self._library = library
        self._found: dict[AgentId, Sequence[Correction]] = {}

    async def redact(self, agent_id: AgentId, messages: Sequence[ImportedMessage]) -> Sequence[ImportedMessage]:
        """Return messages without what the agent has forgotten since they were said."""
        found = [*messages]
        for correction, redactor in await self._redactors(agent_id):
            for at, one in enumerate(found):
                if one.occurred_at <= correction.created_at:
                    said = [one.text, one.name, json.loads(parts_to_json(one.parts))]
                    if (clean := redactor.redact_value(said)) != said:
                        parts = parts_from_json(json.dumps(clean[2]))
                        found[at] = replace(one, text=clean[0], name=clean[1], parts=parts)
        return found

    async def without(self, agent_id: AgentId, passages: Sequence[Passage]) -> Sequence[Passage]:
        """Return the passages that contain nothing which the agent has forgotten since they were written."""
        for correction, redactor in await self._redactors(agent_id):
            passages = [
                one for one in passages if one.occurred_at > correction.created_at or not redactor.finds(one.text)
            ]
        return passages

    async def _redactors(self, agent_id: AgentId) -> Sequence[tuple[Correction, Redactor]]:
        """What an agent has forgotten, each with a redactor for it; empty for an agent that is not created yet."""
        if agent_id and agent_id not in self._found:
            self._found[agent_id] = await self._library.transfer.list_forgotten(agent_id)
        found = self._found.get(agent_id, ())
        return [(one, Redactor(one.needle)) for one in found if one.needle != REDACTED]
