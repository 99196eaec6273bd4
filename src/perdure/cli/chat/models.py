"""Texts about models: which there are, which one an agent has and why, what to do if it is missing."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.app import App, ModelRegistry, facts_of
from perdure.cli.views.view import ModelRow, first_names
from perdure.core.errors import ModelNotFound
from perdure.core.models import EXTRACTIVE
from perdure.library.agent import AsyncAgent

MODELS_MAX = 8
DEFAULT = "default"
"""In place of a handle: the agent follows the default."""


def known_models(handles: Sequence[str]) -> str:
    """The first handles, and how many more there are."""
    return first_names(handles, MODELS_MAX)


def model_row(agent: AsyncAgent, app: App) -> ModelRow:
    """The model of an agent with its facts. Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong."""
    handle = agent.info.model
    problem = "" if app.models.takes(handle) else f"it is not available here: {what_helps(agent, app)}"
    how = "follows the default" if agent.info.follows_default else "pinned"
    reason = f"{how}; {app.choice.reason}" if handle == app.choice.handle else how
    return ModelRow(handle, reason, facts_of(handle), problem)


async def set_model(agent: AsyncAgent, handle: str, app: App) -> AsyncAgent:
    """Pin the agent to a model, or with `default` have it follow the default. Raises: ModelNotFound, InvalidInput."""
    facts_of(handle)  # fails before anything changes if the catalog is wrong
    if handle != DEFAULT:
        await ask_for_models(handle, app.models)
    try:
        return await agent.update(model=None if handle == DEFAULT else handle)
    except ModelNotFound as error:
        raise with_help(error, app.models) from error


async def ask_for_models(handle: str, models: ModelRegistry) -> None:
    """Ask the providers which models they have, unless the handle is one that needs none; at most 3 s."""
    if handle != EXTRACTIVE and handle not in models.own_handles:
        await models.refresh()


def what_helps(agent: AsyncAgent, app: App) -> str:
    """What to do about a model that is not available; the start of a sentence."""
    return app.models.what_helps(agent.info.model) or (
        f"Agent {agent.name!r} belongs to a program that brings this model along: talk to it from there"
    )


def with_help(error: ModelNotFound, models: ModelRegistry) -> ModelNotFound:
    """The error, with what to do and only the first of the known models."""
    help = models.what_helps(error.handle)
    text = f"model {error.handle!r} is not available here: there are {known_models(error.known)}"
    error.args = (f"{text}. {help}" if help else text,)
    return error


def price(dollars: float | None) -> str:
    """US dollars per million tokens, as people write them."""
    if dollars is None:
        return "?"
    return "free" if dollars == 0 else f"${dollars:,.3f}".rstrip("0").rstrip(".")
