"""Origins: who wrote a memory and in answer to what, and what was in the request behind an answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perdure.app import App
from perdure.context.sections.assemble import parse_recalled
from perdure.core.errors import InvalidInput, NotFound
from perdure.core.features import Point
from perdure.core.ids import AgentId, BlockId, ConversationId, MessageId, PassageId, RunId, StepId
from perdure.core.nodes import parse_handle
from perdure.core.runs import RunFilter
from perdure.core.text.forms import match_form
from perdure.domain.archives.passages import page_of_text
from perdure.features.origins.answers import answer_of, last_step, recalled_texts
from perdure.features.origins.memories import MemoryOrigins
from perdure.features.origins.origin_values import AnswerOrigin, Origin, RecalledText
from perdure.library.ids import ID_START, resolve_id
from perdure.library.parts.checks import check_text
from perdure.library.parts.part import AsyncAgentPart, AsyncPart, find_conversation, find_message, find_run, reads
from perdure.library.runs.steps import load_with_run
from perdure.storage.tx import Tx

ORIGIN_OF: Point[[Tx, str, AgentId | None, str], Origin] = Point("origin_of")
"""Where a memory of a feature comes from, by its id, for this agent or any; days are of this time zone."""


VERSIONS_MAX = 1_000
"""Versions of a block that are searched for words."""
NAMED_MAX = 5
"""Memories that an error names."""
LINE_CHARS = 80

_LIKE_AN_ID = re.compile(r"(run|step|message|passage|block|fact|entity)-\w*", re.ASCII)


class AsyncWhy(AsyncAgentPart):
    """Where memories and answers come from; `AsyncAgent` has these methods."""

    async def why(self, of: str, *, conversation: ConversationId | None = None) -> Origin:
        """Where a memory or an answer comes from. `of`: an id of a run, step, message, block or passage, or its
        beginning; `block-...:3` is a line; a summary's handle; or words of only one memory. Raises: InvalidInput: of
        several; NotFound, also for another agent's."""
        check_text("of", of)
        if not of.strip():
            raise InvalidInput("of is empty: give an id, or words of a memory")
        return await self._app.ports.store.read(
            lambda tx: _find_origin(MemoryOrigins(tx, self._agent_id), of.strip(), conversation, self._app)
        )

    async def find_answer(self, of: str) -> AnswerOrigin:
        """The origin of an answer. Raises: as `why`; NotFound: the id is of a memory."""
        origin = await self.why(of)
        if isinstance(origin, AnswerOrigin):
            return origin
        raise NotFound("answer", of, hint="that is a memory")


class RecalledTexts(AsyncPart):
    """What was recalled for the requests of an agent."""

    @reads
    def newest(self, tx: Tx, conversation: ConversationId | None) -> Sequence[RecalledText]:
        """What was recalled for a conversation's newest message, also before its model is called. Raises: NotFound."""
        found = find_conversation(tx, self._id, conversation)
        where = RunFilter(agent_ids=(found.agent_id,), conversation_seq=found.seq)
        for run in tx.runs.page(where, limit=1):
            for step in tx.steps.list_by_run(run.key):
                if text := parse_recalled(step.recipe.tail):
                    return recalled_texts(tx, run, text)
        return ()


# --- what a name stands for


def _find_origin(origins: MemoryOrigins, of: str, conversation: ConversationId | None, app: App) -> Origin:
    """The origin of what an id, a handle or a text names. Raises: InvalidInput, NotFound."""
    tx, agent_id = origins.tx, origins.agent_id
    if (match := ID_START.fullmatch(of)) is not None and (match[3] is None or match[1] == "block"):
        return _find_by_id(origins, resolve_id(tx, f"{match[1]}-{match[2]}"), match[3], app)
    if agent_id is None:
        raise InvalidInput(
            f"{of!r:.{LINE_CHARS}} is not an id of a run, step, message, passage, block or fact: those that are printed"
            " begin so; name an agent to look for words or a summary"
        )
    tx.agents.model(agent_id)
    handle = parse_handle(of)
    if handle is not None and handle.kind == "node":
        found = find_conversation(tx, agent_id, conversation)
        nodes = tx.nodes.list_by_seqs(agent_id, found.seq, [handle.first])
        if not nodes:
            raise NotFound("summary", of, hint="the conversation has none of this number")
        return origins.of_summary(found, nodes[0])
    return _find_by_text(origins, agent_id, of)


def _find_by_id(origins: MemoryOrigins, id_: str, line: str | None, app: App) -> Origin:
    """The origin of the thing with this id. Raises: NotFound."""
    tx, agent_id = origins.tx, origins.agent_id
    match id_.partition("-")[0]:
        case "block":
            block = tx.blocks.get(BlockId(id_))
            whole = origins.of_block(block)
            return whole if line is None else origins.of_line(block, int(line) - 1)
        case "passage":
            return origins.of_passage(tx.passages.get(PassageId(id_)))
        case "fact":
            for origin in ORIGIN_OF(tx, id_, agent_id, app.ports.settings.timezone):
                return origin
            raise NotFound("fact", id_)
        case "entity":
            raise InvalidInput(f"{id_} is an entity: give the id of a fact about it")
        case "step":
            run, step = load_with_run(tx, StepId(id_))
        case "run":
            run = find_run(tx, RunId(id_), None)
            step = last_step(tx, run)
        case _:
            message = find_message(tx, MessageId(id_))
            if message.step_id is not None:
                run, step = load_with_run(tx, message.step_id)
            elif message.run_id is not None:
                run = tx.runs.get(message.run_id)
                step = last_step(tx, run)
            else:
                raise NotFound("answer to this message", id_, hint="it was imported, and is in no run")
    origins.check_owner(run.key.agent_id, id_.partition("-")[0], id_)
    return answer_of(tx, run, step, app.models, app.ports.counter)


def _find_by_text(origins: MemoryOrigins, agent_id: AgentId, text: str) -> Origin:
    """Return the origin of the only memory that contains a text: a line of a block, a passage, or a line of an earlier
    version. Raises: NotFound; InvalidInput: several do."""
    tx = origins.tx
    blocks = tx.blocks.list_by_agent(agent_id)
    lines = [
        (block, place, line) for block in blocks for place, line in enumerate(block.value.split("\n")) if line.strip()
    ]
    exact = [found for found in lines if found[2].strip() == text]
    matching = exact or [found for found in lines if match_form(text) in match_form(found[2])]
    archives = tx.archives.list_by_agent(agent_id)
    passages = [one for archive in archives for one in page_of_text(tx, archive.id, text, limit=NAMED_MAX + 1)]
    if (not exact and len(matching) + len(passages) > 1) or len(exact) > 1:
        named = [f"{block.id}:{place + 1}" for block, place, _ in matching] + [passage.id for passage in passages]
        more = " and more" if len(named) > NAMED_MAX else ""
        raise InvalidInput(
            f"several memories hold {text!r:.{LINE_CHARS}}: {', '.join(named[:NAMED_MAX])}{more}; give one of these ids"
        )
    if matching:
        return origins.of_line(matching[0][0], matching[0][1])
    if passages:
        return origins.of_passage(passages[0])
    for block in blocks:
        for version in tx.blocks.versions(block.id, limit=VERSIONS_MAX):
            old = version.value.split("\n")
            place = next((place for place, line in enumerate(old) if match_form(text) in match_form(line)), None)
            if place is not None:
                return origins.of_line(block, place, version.version)
    if match := _LIKE_AN_ID.fullmatch(text):
        raise NotFound(match[1], text, hint="give at least its first four digits, as they are printed")
    raise NotFound("memory with the text", text, hint="no block, version or passage of the agent holds it")
