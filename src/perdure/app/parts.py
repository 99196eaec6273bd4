"""Parts of an engine that the settings choose: hooks, the web tools, the counter of tokens, the keys of secrets.

The composition root builds the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from perdure.context.sections.tokens import ScriptTokenCounter
from perdure.core.errors import InvalidInput
from perdure.core.features import Point
from perdure.core.hooks import Hook
from perdure.core.incoming.addresses import is_postgres
from perdure.core.incoming.principals import UseLimits
from perdure.core.ports import TokenCounter
from perdure.engine.ports import EngineSettings
from perdure.scratch import user_path
from perdure.settings import Settings
from perdure.storage.cipher import KEY_FILE as KEY_FILE
from perdure.storage.cipher import AesCipher
from perdure.storage.cipher import add_key as add_key
from perdure.storage.cipher import forget_old_keys as forget_old_keys
from perdure.storage.cipher import make_key_file as make_key_file
from perdure.toolbox.builtin.toolbox import WebSettings
from perdure.toolbox.hook_commands import HOOKS_FILE, command_hooks, entry_point_hooks

MORE_HOOKS: Point[[Settings], Sequence[Hook]] = Point("more_hooks")
"""Hooks that features have for a process."""


def configured_hooks(settings: Settings, *, at_home: bool = True) -> list[Hook]:
    """Return the hooks of this machine in calling order: the user's commands, hooks of features (such as plug-ins),
    hooks of installed packages. Without `at_home`, `hooks.toml` beside the store's file and the features are left out.
    Raises: InvalidInput: an unusable file or package."""
    if settings.hooks == "none":
        return []
    of_features = [hook for hooks in (MORE_HOOKS(settings) if at_home else ()) for hook in hooks]
    if not settings.hooks and (not at_home or is_postgres(settings.store)):
        return [*of_features, *entry_point_hooks()]
    file = user_path(settings.hooks) if settings.hooks else settings.store_path.parent / HOOKS_FILE
    if settings.hooks and not file.is_file():
        raise InvalidInput(f"PERDURE_HOOKS is {settings.hooks!r}: there is no such file")
    return [*command_hooks(file), *of_features, *entry_point_hooks()]


def web_search_engine(settings: Settings) -> tuple[str, tuple[str, ...]]:
    """Return (the engine of the tool `web_search`, empty if it is off; the environment variables that turn one on)."""
    from perdure.toolbox.builtin.web_search import ENGINES, choose_engine

    engine = choose_engine(os.environ, name=settings.web_search, searxng_url=settings.searxng_url)
    return "" if engine is None else engine.name, tuple(kind.variable for kind in ENGINES.values())


def web_settings(settings: Settings) -> WebSettings:
    """Return the settings of the web tools."""
    return WebSettings(
        search=settings.web_search,
        searxng_url=settings.searxng_url,
        allowed_hosts=tuple(settings.web_allowed_hosts.split(",")),
        environment=os.environ,
    )


def engine_settings(settings: Settings) -> EngineSettings:
    """Return those settings that the engine needs."""
    return EngineSettings(
        timezone=settings.timezone,
        lease_s=settings.lease_s,
        beat_s=min(1.0, settings.lease_s / 3),
        message_limit_chars=settings.message_limit_chars,
        limits=settings,
        run_budget=UseLimits(tokens_per_run=settings.max_tokens or None, cost_per_run=settings.max_cost_usd or None),
        context_window_tokens=settings.context_window_tokens,
        tool_output=settings.tool_output,
        extract_at_close=settings.facts == "patterns",
        schedule_grace_s=settings.schedule_grace_s,
    )


async def token_counter_of(settings: Settings) -> TokenCounter:
    """Return the token counter that the settings choose. Raises: InvalidInput: tiktoken's ranks are not on disk."""
    if settings.token_counter == "script":
        return ScriptTokenCounter()
    from perdure.providers.tiktoken_counter import TiktokenCounter

    return await asyncio.to_thread(TiktokenCounter.from_disk)  # it reads and sorts 200,000 ranks


def key_file_of(address: str | Path | None) -> Path | None:
    """Return the file for the keys of secrets, beside the store's file; None: the store at `address` is no file."""
    return None if address is None or is_postgres(address) else Path(str(address)).parent / KEY_FILE


def cipher_of(settings: Settings, address: str | Path | None) -> AesCipher:
    """Return the cipher for the store at `address`; None: the program brought the store. Raises: InvalidInput."""
    return AesCipher(settings.secret_key, file=key_file_of(address), old_key=settings.secret_key_old)
