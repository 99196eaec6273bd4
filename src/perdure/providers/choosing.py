"""Choose the model of agents that are made without one.

A setting decides; else the first provider of the environment that has a model; else a local server with a model that
can call tools; else the built-in program.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.core.incoming.json_limits import parse_json
from perdure.providers.bounded import LISTING, json_of, read_answer
from perdure.providers.discovery import (
    LIST_TIMEOUT_S,
    PROVIDERS,
    Endpoint,
    Listing,
    http_client,
    is_chat_model,
)
from perdure.providers.masking import mask_text

BUILT_IN = "perdure/extractive"

PROBE_TOOLS_TIMEOUT_S = 20.0
PROBED_MAX = 3
"""Models of one local server that are tried: each may take seconds to load."""

DETAIL_CHARS = 120

BUILT_IN_REASON = "built in, needs no key: no language model, it notes and finds what you tell it"

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
    """

    handle: str
    reason: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolProbe:
    """The result of trying a tool call on a model; `problem` is empty if the model made the call."""

    handle: str
    problem: str = ""


def choose_offline(setting: str, endpoints: Sequence[Endpoint]) -> Choice:
    """The choice without network: a provider with a key is taken, a server whose models are unknown is not."""
    if setting:
        return Choice(setting, "from PERDURE_MODEL")
    notes: list[str] = []
    for one in endpoints:
        provider = PROVIDERS[one.provider]
        if one.problem:
            notes.append(one.problem)
        elif one.has_key and provider.default_model:
            return Choice(f"{one.provider}/{provider.default_model}", f"from {one.source}", tuple(notes))
        else:
            notes.append(
                f"{one.source} names a server whose models are not known without asking it:"
                f" set PERDURE_MODEL={one.provider}/NAME"
            )
    return Choice(BUILT_IN, BUILT_IN_REASON, tuple(notes))


async def choose_model(
    setting: str,
    endpoints: Sequence[Endpoint],
    listings: Mapping[str, Listing],
    *,
    probe_local: Callable[[], Awaitable[Sequence[tuple[Endpoint, Listing]]]],
    probe_tools: Callable[[Endpoint, str], Awaitable[ToolProbe]],
) -> Choice:
    """Choose the model: the one set, else the first usable one of a provider, of a local server, else the built-in one.

    Args:
        setting: the handle that the user has set, or an empty text. It is not checked.
        listings: provider -> its models.
        probe_local: finds servers on this machine; called only if no provider has a model.
        probe_tools: tries a tool call on a model of a local server.
    """
    if setting:
        return Choice(setting, "from PERDURE_MODEL")
    notes: list[str] = []
    for one in endpoints:
        listing = listings.get(one.provider, Listing())
        choice = await _choose_from(one, listing, probe_tools, notes)
        if choice is not None:
            return replace(choice, notes=tuple(notes))
    for one, listing in await probe_local():
        if (choice := await _choose_from(one, listing, probe_tools, notes)) is not None:
            return replace(choice, notes=tuple(notes))
    return Choice(BUILT_IN, BUILT_IN_REASON, tuple(notes))


async def _choose_from(
    endpoint: Endpoint, listing: Listing, probe_tools: Callable[[Endpoint, str], Awaitable[ToolProbe]], notes: list[str]
) -> Choice | None:
    """A model of this provider; None adds a note that says why."""
    provider = PROVIDERS[endpoint.provider]
    if endpoint.problem:
        notes.append(endpoint.problem)
        return None
    if listing.problem and not _has_no_list(endpoint, listing):
        if not endpoint.local and provider.default_model:
            # A key means that this provider is wanted. A new agent keeps its model for good, so a wrong key or a short
            # outage must not give it another one; its runs show the error.
            reason = f"from {endpoint.source}; it can't be asked now: {listing.problem}"
            return Choice(f"{endpoint.provider}/{provider.default_model}", reason)
        notes.append(listing.problem)
        return None
    if not endpoint.local:
        name = pick(provider.preferred, listing.models) if listing.models else provider.default_model
        if name:
            return Choice(f"{endpoint.provider}/{name}", f"from {endpoint.source}")
        notes.append(f"{endpoint.address} has no chat model")
        return None
    names = [name for name in _by_preference(provider.preferred, listing.models) if is_chat_model(name)]
    if not names:
        notes.append(f"{endpoint.provider} at {endpoint.address} has no model yet{_install_hint(endpoint.provider)}")
        return None
    for name in names[:PROBED_MAX]:
        probe = await probe_tools(endpoint, name)
        if not probe.problem:
            return Choice(probe.handle, f"found by {endpoint.source}, and it calls tools")
        notes.append(f"{probe.handle}: {probe.problem}")
    return None


def pick(preferred: Sequence[str], models: Sequence[str]) -> str | None:
    """The first preferred chat model in the list, else the first chat model; None if there is none."""
    return next((name for name in _by_preference(preferred, models) if is_chat_model(name)), None)


async def probe_tools(endpoint: Endpoint, name: str, *, timeout_s: float = PROBE_TOOLS_TIMEOUT_S) -> ToolProbe:
    """Ask the model for one tool call. Never raises; `problem` says what went wrong."""
    import httpx

    from perdure.providers.openai_chat.endpoint import api_url

    handle = f"{endpoint.provider}/{name}"
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
    try:
        async with asyncio.timeout(timeout_s), http_client(endpoint.base_url, timeout_s=timeout_s) as client:
            async with client.stream("POST", url, json=body, headers=headers) as answer:
                if answer.status_code != 200:
                    text = (await read_answer(answer, LISTING.size_bytes))[:4_000].decode("utf-8", "replace")
                    said = mask_text(text, [endpoint.api_key] if endpoint.has_key else ())
                    said = " ".join(said.split())[:DETAIL_CHARS]
                    return ToolProbe(handle, f"a request with a tool was answered with {answer.status_code}: {said}")
                has_call = _has_call(await json_of(answer, LISTING))
            return ToolProbe(handle, "" if has_call else "it did not call the tool it was asked to call")
    except (TimeoutError, httpx.TimeoutException):
        return ToolProbe(handle, f"it did not answer within {timeout_s:g} s")
    except (httpx.HTTPError, OSError) as error:
        return ToolProbe(handle, f"it can't be reached: {type(error).__name__}")
    except ValueError:
        return ToolProbe(handle, "its answer is no JSON")


async def served_window(endpoint: Endpoint, name: str) -> int | None:
    """The window in tokens that Ollama has loaded this model with; None for another server, or if it does not say."""
    if endpoint.provider != "ollama":
        return None
    import httpx

    try:
        async with http_client(endpoint.base_url, timeout_s=LIST_TIMEOUT_S) as client:
            async with client.stream("GET", f"{endpoint.base_url.removesuffix('/v1')}/api/ps") as response:
                answer = await json_of(response, LISTING)
            for row in answer["models"]:
                if row["name"] in (name, f"{name}:latest") and type(row.get("context_length")) is int:
                    return int(row["context_length"])
    except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError):
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


def _by_preference(preferred: Sequence[str], models: Sequence[str]) -> list[str]:
    """All models, those that fit the preferred patterns first, in the order of the patterns."""
    chosen = [name for pattern in preferred for name in models if fnmatch.fnmatchcase(name.lower(), pattern.lower())]
    return list(dict.fromkeys((*chosen, *models)))


def _has_no_list(endpoint: Endpoint, listing: Listing) -> bool:
    """Whether the provider answers but has no list; then its default model is worth a try."""
    return endpoint.has_key and listing.status in (404, 405, 501)


def _install_hint(provider: str) -> str:
    return ": `ollama pull qwen3` gets one" if provider == "ollama" else ""
