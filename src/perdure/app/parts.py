"""Parts of an engine that the settings choose: hooks, and the web tools.

The composition root builds the rest.
"""

from __future__ import annotations

import os
from pathlib import Path

from perdure.core.errors import InvalidInput
from perdure.core.hooks import Hook
from perdure.core.text.addresses import is_postgres
from perdure.settings import Settings
from perdure.toolbox.builtin.toolbox import WebSettings
from perdure.toolbox.hooks.commands import HOOKS_FILE, command_hooks
from perdure.toolbox.hooks.functions import entry_point_hooks


def configured_hooks(settings: Settings, *, at_home: bool = True) -> list[Hook]:
    """The hooks of this machine in the order of calls: the user's commands, then those of installed packages.

    Args:
        at_home: whether the store is the one of the settings; only then the `hooks.toml` beside its file is read.
    Raises: InvalidInput: an unusable file or package.
    """
    if settings.hooks == "none":
        return []
    if not settings.hooks and (not at_home or is_postgres(settings.store)):
        return [*entry_point_hooks()]
    file = Path(settings.hooks).expanduser() if settings.hooks else settings.store_path.parent / HOOKS_FILE
    if settings.hooks and not file.is_file():
        raise InvalidInput(f"PERDURE_HOOKS is {settings.hooks!r}: there is no such file")
    return [*command_hooks(file), *entry_point_hooks()]


def web_search_engine(settings: Settings) -> tuple[str, tuple[str, ...]]:
    """The engine of `web_search`, empty if it is off, and the variables that turn one on."""
    from perdure.toolbox.builtin.search_engines import ENGINES
    from perdure.toolbox.builtin.web_search import choose_engine

    engine = choose_engine(os.environ, name=settings.web_search, searxng_url=settings.searxng_url)
    return "" if engine is None else engine.name, tuple(kind.variable for kind in ENGINES.values())


def web_settings(settings: Settings) -> WebSettings:
    """The settings of the web tools."""
    return WebSettings(
        search=settings.web_search,
        searxng_url=settings.searxng_url,
        allowed_hosts=tuple(settings.web_allowed_hosts.split(",")),
        environment=os.environ,
    )
