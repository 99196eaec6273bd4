"""What a person is told of models: which there are, which one an agent has and why, what helps if it is not there."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.app import App, ModelRegistry, facts_of
from perdure.cli.views.view import ModelRow
from perdure.core.errors import ModelNotFound
from perdure.library.agent import AsyncAgent

__all__ = ["known_models", "model_row", "price", "what_helps", "with_help"]

SHOWN_MODELS = 8


def known_models(handles: Sequence[str]) -> str:
    """Some of the handles, and how many more there are."""
    shown = ", ".join(list(handles)[:SHOWN_MODELS])
    return f"{shown}, and {len(handles) - SHOWN_MODELS:,} more" if len(handles) > SHOWN_MODELS else shown


def model_row(agent: AsyncAgent, app: App) -> ModelRow:
    """The model of an agent, as it was looked up. Raises: InvalidInput: the catalog of PERDURE_CATALOG is wrong."""
    handle = agent.info.model
    problem = "" if app.models.takes(handle) else f"it is not available here: {what_helps(agent, app)}"
    reason = app.choice.reason if handle == app.choice.handle else "this agent's own"
    return ModelRow(handle, reason, facts_of(handle), problem)


def what_helps(agent: AsyncAgent, app: App) -> str:
    """What to do about a model that is not here; how a sentence begins."""
    return app.models.what_helps(agent.info.model) or (
        f"Agent {agent.name!r} belongs to a program that brings this model along: talk to it from there"
    )


def with_help(error: ModelNotFound, models: ModelRegistry) -> ModelNotFound:
    """The same error, saying what to do, and naming only some of the models there are."""
    missing = models.what_helps(error.handle)
    told = f"model {error.handle!r} is not available here: there are {known_models(error.known)}"
    error.args = (f"{told}. {missing}" if missing else told,)
    return error


def price(dollars: float | None) -> str:
    """US dollars per million tokens, as people write them."""
    if dollars is None:
        return "?"
    return "free" if dollars == 0 else f"${dollars:,.3f}".rstrip("0").rstrip(".")
