"""Choose the model of agents that are made without one.

A setting decides; else the first provider of the environment that has a model; else a local server with a model that
can call tools; else the built-in program.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.core.incoming.json_limits import parse_json
from perdure.core.models import EXTRACTIVE
from perdure.providers.bounded import LISTING
from perdure.providers.discovery import LIST_TIMEOUT_S, Endpoint, Listing, fetch_json

PROBE_TOOLS_TIMEOUT_S = 20.0
PROBED_MAX = 3
"""Models of one local server that are tried: each may take seconds to load."""

DETAIL_CHARS = 120

EXTRACTIVE_REASON = "built in, needs no key: no language model, it notes and finds what you tell it"

_NOTE_TOOL = {
    "type": "function",
    "function": {
        "name": "note",
        "description": "Write a note.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The model of agents that are made without one.

    Args:
        handle: `provider/name`.
        reason: why, in a few words; holds no key.
        notes: what was tried before and why it was not taken, one sentence each.
        is_setting: PERDURE_MODEL names it; else it was found.
    """

    handle: str
    reason: str
    notes: tuple[str, ...] = ()
    is_setting: bool = False


def choose_offline(setting: str, endpoints: Sequence[Endpoint]) -> Choice:
    """The choice without network: a provider with a key is taken, a server whose models are unknown is not."""
    if setting:
        return Choice(setting, "from PERDURE_MODEL", is_setting=True)
    notes: list[str] = []
    for endpoint in endpoints:
        provider = endpoint.entry
        if endpoint.problem:
            notes.append(endpoint.problem)
        elif endpoint.has_key and provider.default_model:
            return Choice(f"{endpoint.provider}/{provider.default_model}", f"from {endpoint.source}", tuple(notes))
        else:
            notes.append(
                f"{endpoint.source} names a server whose models are not known without asking it:"
                f" set PERDURE_MODEL={provider.name}/NAME"
            )
    return Choice(EXTRACTIVE, EXTRACTIVE_REASON, tuple(notes))


async def choose_from(
    endpoint: Endpoint, listing: Listing, probe_tools: Callable[[Endpoint, str], Awaitable[str]], notes: list[str]
) -> Choice | None:
    """A model of this provider; None adds a note that says why there is none.

    Args:
        probe_tools: tries a tool call on a model of a local server, see `probe_tools`.
    """
    provider = endpoint.entry
    names = chat_models(listing.models, provider.preferred)
    # A provider that has no list at all still answers: its default model is worth a try.
    has_no_list = endpoint.has_key and listing.status in (404, 405, 501)
    if endpoint.problem:
        notes.append(endpoint.problem)
    elif listing.problem and not has_no_list:
        if not endpoint.local and provider.default_model:
            # A key means that this provider is wanted. A new agent keeps its model for good, so a wrong key or a short
            # outage must not give it another one; its runs show the error.
            reason = f"from {endpoint.source}; it can't be asked now: {listing.problem}"
            return Choice(f"{endpoint.provider}/{provider.default_model}", reason, tuple(notes))
        notes.append(listing.problem)
    elif not endpoint.local:
        name = next(iter(names), "") if listing.models else provider.default_model
        if name:
            return Choice(f"{endpoint.provider}/{name}", f"from {endpoint.source}", tuple(notes))
        notes.append(f"{endpoint.address} has no chat model")
    elif not names:
        hint = ": `ollama pull qwen3` gets one" if endpoint.provider == "ollama" else ""
        notes.append(f"{endpoint.provider} at {endpoint.address} has no model yet{hint}")
    else:
        for name in names[:PROBED_MAX]:
            handle = f"{endpoint.provider}/{name}"
            problem = await probe_tools(endpoint, name)
            if not problem:
                return Choice(handle, f"found by {endpoint.source}, and it calls tools", tuple(notes))
            notes.append(f"{handle}: {problem}")
    return None


def chat_models(models: Sequence[str], preferred: Sequence[str]) -> list[str]:
    """The chat models, those that fit the preferred patterns first, in the order of the patterns."""
    first = [name for pattern in preferred for name in models if fnmatch.fnmatchcase(name.lower(), pattern.lower())]
    return [name for name in dict.fromkeys((*first, *models)) if is_chat_model(name)]


def is_chat_model(name: str) -> bool:
    """Whether the name is that of a chat model, as far as names tell."""
    lower = name.lower()
    return not any(word in lower for word in _NOT_CHAT)


_NOT_CHAT = (
    "embed", "whisper", "tts", "dall-e", "image", "moderation", "transcribe", "audio", "realtime", "rerank", "ocr",
    "babbage", "davinci", "sora", "bge-", "minilm", "guard", "imagen", "veo", "stable-diffusion", "flux", "voxtral",
    "gpt-3.5-turbo-instruct", "nomic", "-live", "aqa", "search-api", "deep-research", "computer-use",
)  # fmt: skip


async def probe_tools(endpoint: Endpoint, name: str, *, timeout_s: float = PROBE_TOOLS_TIMEOUT_S) -> str:
    """Ask the model for one tool call: why it made none, or an empty text. Never raises."""
    from perdure.providers.openai_chat.endpoint import api_url

    body = {
        "model": name,
        "messages": [{"role": "user", "content": 'Call the tool `note` with the text "hi". Do nothing else.'}],
        "tools": [_NOTE_TOOL],
        "tool_choice": "auto",
        "stream": False,
        "max_tokens": 1_000,  # a reasoning model needs some before the call
    }
    headers = {"Authorization": f"Bearer {endpoint.api_key}"}
    url = api_url(endpoint.base_url, "/chat/completions")
    answer = await fetch_json(endpoint, url, timeout_s=timeout_s, headers=headers, body=body)
    if answer.problem:
        return f"it {answer.problem}"
    if answer.status != 200:
        return f"a request with a tool was answered with {answer.status}: {answer.data[:DETAIL_CHARS]}"
    if answer.data is None:
        return "its answer is no JSON"
    return "" if _has_call(answer.data) else "it did not call the tool it was asked to call"


async def served_window(endpoint: Endpoint, name: str) -> int | None:
    """The window in tokens that Ollama has loaded this model with; None for another server, or if it does not say."""
    if endpoint.provider != "ollama":
        return None
    answer = await fetch_json(endpoint, f"{endpoint.base_url.removesuffix('/v1')}/api/ps", timeout_s=LIST_TIMEOUT_S)
    try:
        for row in answer.data["models"]:
            if row["name"] in (name, f"{name}:latest") and type(row.get("context_length")) is int:
                return int(row["context_length"])
    except (KeyError, TypeError):
        pass
    return None


def _has_call(answer: Any) -> bool:
    """Whether this chat completion has a call of `note` with a text."""
    try:
        for call in answer["choices"][0]["message"]["tool_calls"]:
            arguments = call["function"]["arguments"]
            arguments = parse_json(arguments, LISTING) if isinstance(arguments, str) else arguments
            if call["function"]["name"] == "note" and "hi" in str(arguments["text"]).lower():
                return True
    except (KeyError, IndexError, TypeError, ValueError):
        pass
    return False
