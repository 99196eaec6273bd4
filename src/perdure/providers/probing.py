"""Try a model of a server of one's own: what the server runs it with, whether it calls tools, how fast it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from perdure.core.errors import ModelError
from perdure.core.incoming.json_limits import parse_json
from perdure.core.messages import ToolCall, text_of, unlogged_message
from perdure.core.models import Calling, Model, ModelOptions, ModelProgress, ModelReply, ModelRequest
from perdure.providers.bounded import LISTING, beside_api
from perdure.providers.discovery import LIST_TIMEOUT_S, Endpoint, fetch_json
from perdure.providers.traits import NOT_SERVED, Served, loaded_in, props_of, served_in, shown_in

SILENCE_S = 60.0
"""How long a model that is tried may say nothing: it may have to be loaded from a disk first."""
ANSWER_TOKENS = 1_000  # a reasoning model needs some before the call

_QUESTION = 'Call the tool `note` with the text "hi". Do nothing else.'
_NOTE: Mapping[str, Any] = {
    "name": "note",
    "description": "Write a note.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@dataclass(frozen=True, slots=True)
class Trial:
    """What a request with a tool showed.

    Args:
        problem: why no call came; empty if one came, in whichever form.
        calling: how the model calls tools; None: it did not answer.
    """

    problem: str = ""
    calling: Calling | None = None


async def try_tools(model: Model, handle: str, *, silence_s: float = SILENCE_S) -> Trial:
    """Ask the model for one tool call, and wait as long as something comes. Never raises a ModelError."""
    request = ModelRequest(
        model=handle,
        system="",
        messages=(unlogged_message("user", _QUESTION),),
        tools=(_NOTE,),
        options=ModelOptions(max_output_tokens=ANSWER_TOKENS, temperature=0.0),
    )
    reply: ModelReply | None = None
    try:
        async with asyncio.timeout(silence_s) as limit:
            async for piece in model.respond(request):
                if isinstance(piece, ModelReply):
                    reply = piece
                if not (isinstance(piece, ModelProgress) and piece.stage == "waiting"):
                    limit.reschedule(asyncio.get_running_loop().time() + silence_s)
    except TimeoutError:
        return Trial(f"said nothing for {silence_s:g} s")
    except ModelError as error:
        return Trial(f"could not be tried: {error}")
    if reply is None:
        return Trial("ended its answer without a reply")
    if any(isinstance(part, ToolCall) and _is_right(part) for part in reply.parts):
        in_text = reply.exchange is not None and "calls_in_text" in reply.exchange.response
        return Trial(calling="text" if in_text else "native")
    if _is_written(text_of(reply.parts)):
        return Trial(calling="text")
    return Trial("did not call the tool it was asked to call", "none")


def _is_right(call: ToolCall) -> bool:
    """Whether this is the call that was asked for."""
    try:
        arguments = parse_json(call.arguments, LISTING)
        return call.name == "note" and "hi" in str(arguments["text"]).lower()
    except (KeyError, TypeError, ValueError):
        return False


def _is_written(text: str) -> bool:
    """Whether an answer has the call in its text, in any form: the name of the tool and its text behind it."""
    _, name, rest = text.partition("note")
    return bool(name) and "hi" in rest and any(sign in text for sign in "{([")


async def look_closer(endpoint: Endpoint, name: str, listed: Served, *, timeout_s: float = LIST_TIMEOUT_S) -> Served:
    """What a server says of a model beyond its list of models. Never raises.

    Args:
        listed: what the list says.
    """

    async def ask(path: str, body: Mapping[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.has_key else {}
        url = beside_api(endpoint.base_url, path)
        answer = await fetch_json(endpoint, url, timeout_s=timeout_s, headers=headers, body=body)
        return answer.data if answer.status == 200 else None

    match listed.server or endpoint.entry.name:
        case "ollama":
            loaded, shown = await asyncio.gather(ask("/api/ps"), ask("/api/show", {"model": name}))
            found = [loaded_in(loaded, name), shown_in(shown)]
        case "lmstudio":
            found = [served_in(await ask("/api/v0/models")).get(name, NOT_SERVED)]
        case "llamacpp":
            found = [props_of(await ask("/props"))]
        case _:
            found = []
    return reduce(Served.joined, found, listed)
