"""Why: where a memory or an answer comes from; and on the page of a run what the model saw at a step."""

from __future__ import annotations

import json
from dataclasses import asdict

from starlette.requests import Request

from perdure.context.request.explain import Explanation
from perdure.core.errors import NotFound
from perdure.core.forgetting.origins import FactOrigin, origin_shape
from perdure.core.forgetting.redaction import ASCII_MIN, CHARS_MAX, REDACTED, Redactor
from perdure.core.ids import AgentId, BlockId, ConversationId, MessageId, RunId, is_id
from perdure.core.models import ModelRequest
from perdure.core.text.reprs import attributes
from perdure.features.origins.answers import RequestPiece, find_evidence
from perdure.features.origins.origin_values import AnswerOrigin
from perdure.features.origins.why import RecalledTexts
from perdure.library.perdure import AsyncPerdure
from perdure.ui.pages.chat_items import message_items
from perdure.ui.render import Data, Pages, Section, agent_id_of

pages = Pages()


async def load_step(request: Request, library: AsyncPerdure) -> Data:
    """The request and the answer of the step that the query's `step` names; None without that."""
    if not (wanted := request.query_params.get("step")):
        return {"step": None}
    run = await library.runs.run(RunId(request.path_params["run_id"]))
    answer = await _answer(library, await library.agent_of(run.key.agent_id).find_answer(wanted))
    return {"step": answer["step"]}


STEP = Section(name="step", load=load_step, actions={}, is_of_page=True)


async def load_recalled(request: Request, library: AsyncPerdure) -> list[Data]:
    """What was recalled for the newest message of the conversation that the query names."""
    conversation = request.query_params.get("conversation")
    recalled = RecalledTexts(library.app, agent_id_of(request))
    return [asdict(one) for one in await recalled.newest(ConversationId(conversation) if conversation else None)]


RECALLED = Section(name="recalled", load=load_recalled, actions={})


def answer_shape(origin: AnswerOrigin) -> Data:
    """What was in the request of a step and what it brought, with tokens and prices."""
    exchange, explanation, request = origin.exchange, origin.explanation, origin.request
    return origin_shape(origin) | {
        "id": origin.step_id,
        "exchange": None
        if exchange is None
        else {"request": dict(exchange.request), "response": dict(exchange.response)},
        "explanation": None if explanation is None else _explanation_shape(explanation),
        "request": None if request is None else _request_shape(request),
    }


async def _answer(library: AsyncPerdure, origin: AnswerOrigin, *, has_evidence: bool = False) -> Data:
    """Return the step as `answer_shape` and its evidence as `_evidence`, without what was forgotten or deleted since,
    which the recorded request still contains."""
    forgotten = await library.transfer.list_forgotten(origin.agent_id)
    texts = [one.needle for one in forgotten if one.created_at >= origin.at and one.needle != REDACTED]
    for piece in origin.recalled:
        try:
            await library.agent_of(origin.agent_id).why(piece.id)
        except NotFound:
            texts.append(piece.text[:CHARS_MAX])
    shapes: Data = {"step": answer_shape(origin)}
    shapes["evidence"] = await _evidence(library, origin) if has_evidence else []
    for text in texts:
        if len(text.strip()) >= ASCII_MIN:
            shapes = Redactor(text).redact_fields(shapes)
    return shapes


def _explanation_shape(explanation: Explanation) -> Data:
    own = ("model", "status", "measured", "input_tokens", "cached_tokens", "price", "nodes", "digest")
    others = {"output_tokens": "usage.output_tokens", "reason": "prefix_reason", "messages": "message_count"}
    parts = [attributes(part, "name", "tokens", "price", cached="cached_tokens") for part in explanation.segments]
    return attributes(explanation, *own, **others) | {"parts": parts}


def _request_shape(request: ModelRequest) -> Data:
    return {
        "system": "\n\n".join(filter(None, (request.system, request.opening))),
        "tail": request.tail,
        "tools": [json.loads(json.dumps(tool, default=dict)) for tool in request.tools],
        "messages": [
            {"role": message.role, "kind": message.kind, "items": list(message_items(message)), "text": message.text}
            for message in request.messages
        ],
    }


SOURCES_MAX = 20


@pages.get("/why", "why.html")
async def why(request: Request, library: AsyncPerdure) -> Data:
    """The origin of what `of` names; see `AsyncAgent.why`."""
    query = request.query_params
    agent, conversation = query.get("agent"), query.get("conversation")
    origin = await library.agent_of(None if not agent else AgentId(agent)).why(
        query.get("of", ""), conversation=None if not conversation else ConversationId(conversation)
    )
    shapes: Data = {"step": None, "memory": None, "places": {}, "evidence": []}
    if isinstance(origin, AnswerOrigin):
        shapes |= await _answer(library, origin, has_evidence=True)
    else:
        shapes["memory"] = origin_shape(origin)
    if isinstance(origin, FactOrigin):
        shapes["places"] = await _places(library, origin)
    return {"title": "Why", "agent_id": agent, **shapes}


NAMES = {"block": "Memory", "recalled": "Recalled", "summary": "Summary", "search": "Search", "message": "Message"}


async def _evidence(library: AsyncPerdure, origin: AnswerOrigin) -> list[Data]:
    """Return the pieces of a request that contain the words of its answer, each with the address of its page (None: it
    is gone); a forgotten memory has no text."""
    shapes = []
    for one in find_evidence(origin):
        address = await _address(library, origin, one)
        shapes.append(
            {
                **attributes(one, "kind", "id"),
                "text": None if address is None and one.kind == "recalled" else one.text,
                "what": NAMES[one.kind],
                "name": {"user": "a person", "tool": "a tool"}.get(one.name, one.name),
                "address": address,
            }
        )
    return shapes


async def _address(library: AsyncPerdure, origin: AnswerOrigin, piece: RequestPiece) -> str | None:
    """The address of the page for a piece of a request; None: the piece was deleted, or reset."""
    try:
        if piece.kind in ("search", "message"):
            return await _chat_address(library, MessageId(piece.id))
        if piece.kind == "recalled":
            await library.agent_of(origin.agent_id).why(piece.id)
        if piece.kind == "block":  # whose lines may be others by now
            block_id, _, number = piece.id.partition(":")
            lines = (await library.blocks.get(BlockId(block_id))).value.split("\n")
            if piece.text not in lines:
                return f"/why?of={block_id}"
            if lines[int(number) - 1 : int(number)] != [piece.text]:
                return f"/why?of={block_id}:{lines.index(piece.text) + 1}"
    except NotFound:
        return None
    more = f"&agent={origin.agent_id}&conversation={origin.conversation_id}" if piece.kind == "summary" else ""
    return f"/why?of={piece.id}{more}"


async def _chat_address(library: AsyncPerdure, message_id: MessageId) -> str:
    """The address of the chat that ends with a message."""
    message = await library.messages.message(message_id)
    line = await library.conversations.conversation_of_message(message.id)
    return f"/agents/{message.agent_id}?conversation={line.id}&before={message.seq + 1}"


async def _places(library: AsyncPerdure, origin: FactOrigin) -> dict[str, str]:
    """Map the ids of a fact's newest sources to the addresses of the pages that show them."""
    places = dict[str, str]()
    for source in origin.sources[-SOURCES_MAX:]:
        if is_id("passage", source.id):
            places[source.id] = f"/why?of={source.id}"
        if is_id("message", source.id) and source.text is not None:
            places[source.id] = await _chat_address(library, MessageId(source.id))
    return places
