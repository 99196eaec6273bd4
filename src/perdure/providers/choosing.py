"""Which model agents get that are made without one, and why.

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
    Found,
    Listing,
    http_client,
    is_chat_model,
)
from perdure.providers.masking import masked_text

__all__ = ["BUILT_IN", "Choice", "ToolProbe", "choose_model", "choose_unasked", "pick", "probe_tools", "served_window"]

BUILT_IN = "perdure/extractive"

PROBE_TOOLS_TIMEOUT_S = 20.0
PROBED_MAX = 3
"""Models of one local server that are tried: each may take seconds to load."""

SAID_CHARS = 120

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
    """Whether a model called a tool when it was asked to. `problem` is empty if it did."""

    handle: str
    problem: str = ""


def choose_unasked(setting: str, found: Sequence[Found]) -> Choice:
    """The choice without any network: a provider with a key is believed, a server of unknown models is not."""
    if setting:
        return Choice(setting, "from PERDURE_MODEL")
    notes: list[str] = []
    for one in found:
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
    found: Sequence[Found],
    listings: Mapping[str, Listing],
    *,
    probe_local: Callable[[], Awaitable[Sequence[tuple[Found, Listing]]]],
    probe_tools: Callable[[Found, str], Awaitable[ToolProbe]],
) -> Choice:
    """The choice after everybody was asked.

    Args:
        setting: a handle that wins, or nothing.
        listings: provider -> what it said it has.
        probe_local: finds servers on this machine; asked only if nothing else is there.
        probe_tools: tries a tool call on a model of a local server.
    """
    if setting:
        return Choice(setting, "from PERDURE_MODEL")
    notes: list[str] = []
    for one in found:
        listing = listings.get(one.provider, Listing())
        choice = await _of_provider(one, listing, probe_tools, notes)
        if choice is not None:
            return replace(choice, notes=tuple(notes))
    for one, listing in await probe_local():
        if (choice := await _of_provider(one, listing, probe_tools, notes)) is not None:
            return replace(choice, notes=tuple(notes))
    return Choice(BUILT_IN, BUILT_IN_REASON, tuple(notes))


async def _of_provider(
    found: Found, listing: Listing, probe_tools: Callable[[Found, str], Awaitable[ToolProbe]], notes: list[str]
) -> Choice | None:
    """A model of this provider, or None and a note more."""
    provider = PROVIDERS[found.provider]
    if found.problem:
        notes.append(found.problem)
        return None
    if listing.problem and not _has_no_list(found, listing):
        if not found.local and provider.default_model:
            # Whoever gave a key wants this provider. An agent that is made now keeps its model for good, so a key that
            # is wrong, or a server that is down for a moment, must not give it another one; its runs say what is wrong.
            reason = f"from {found.source}; it can't be asked now: {listing.problem}"
            return Choice(f"{found.provider}/{provider.default_model}", reason)
        notes.append(listing.problem)
        return None
    if not found.local:
        name = pick(provider.preferred, listing.models) if listing.models else provider.default_model
        if name:
            return Choice(f"{found.provider}/{name}", f"from {found.source}")
        notes.append(f"{found.address} has no chat model")
        return None
    names = [name for name in _by_preference(provider.preferred, listing.models) if is_chat_model(name)]
    if not names:
        notes.append(f"{found.provider} at {found.address} has no model yet{_how_to_get_one(found.provider)}")
        return None
    for name in names[:PROBED_MAX]:
        probe = await probe_tools(found, name)
        if not probe.problem:
            return Choice(probe.handle, f"found by {found.source}, and it calls tools")
        notes.append(f"{probe.handle}: {probe.problem}")
    return None


def pick(preferred: Sequence[str], models: Sequence[str]) -> str | None:
    """The first of the preferred ones that is there, else the first that can be talked to; None if there is none."""
    return next((name for name in _by_preference(preferred, models) if is_chat_model(name)), None)


async def probe_tools(found: Found, name: str, *, timeout_s: float = PROBE_TOOLS_TIMEOUT_S) -> ToolProbe:
    """Ask the model for one tool call, and see whether it comes. Never raises; what went wrong is in the outcome."""
    import httpx

    from perdure.providers.openai_chat import chat_url

    handle = f"{found.provider}/{name}"
    body = {
        "model": name,
        "messages": [{"role": "user", "content": 'Call the tool `note` with the text "hi". Do nothing else.'}],
        "tools": [_NOTE_TOOL],
        "tool_choice": "auto",
        "stream": False,
        "max_tokens": 1_000,  # one that reasons needs some before it acts
    }
    headers = {"Authorization": f"Bearer {found.api_key}"}
    try:
        async with asyncio.timeout(timeout_s), http_client(found.base_url, timeout_s=timeout_s) as client:
            async with client.stream("POST", chat_url(found.base_url), json=body, headers=headers) as answer:
                if answer.status_code != 200:
                    text = (await read_answer(answer, LISTING.size_bytes))[:4_000].decode("utf-8", "replace")
                    said = masked_text(text, [found.api_key] if found.has_key else ())
                    said = " ".join(said.split())[:SAID_CHARS]
                    return ToolProbe(handle, f"a request with a tool was answered with {answer.status_code}: {said}")
                called = _called(await json_of(answer, LISTING))
            return ToolProbe(handle, "" if called else "it did not call the tool it was asked to call")
    except (TimeoutError, httpx.TimeoutException):
        return ToolProbe(handle, f"it did not answer within {timeout_s:g} s")
    except (httpx.HTTPError, OSError) as error:
        return ToolProbe(handle, f"it can't be reached: {type(error).__name__}")
    except ValueError:
        return ToolProbe(handle, "its answer is no JSON")


async def served_window(found: Found, name: str) -> int | None:
    """The window in tokens that Ollama has loaded this model with; None for another server, or if it does not say."""
    if found.provider != "ollama":
        return None
    import httpx

    try:
        async with http_client(found.base_url, timeout_s=LIST_TIMEOUT_S) as client:
            async with client.stream("GET", f"{found.base_url.removesuffix('/v1')}/api/ps") as response:
                answer = await json_of(response, LISTING)
            for row in answer["models"]:
                if row["name"] in (name, f"{name}:latest") and type(row.get("context_length")) is int:
                    return int(row["context_length"])
    except (httpx.HTTPError, OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _called(answer: Any) -> bool:
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


def _has_no_list(found: Found, listing: Listing) -> bool:
    """It answers, but not this question: then its default model is worth a try."""
    return found.has_key and listing.status in (404, 405, 501)


def _how_to_get_one(provider: str) -> str:
    return ": `ollama pull qwen3` gets one" if provider == "ollama" else ""
