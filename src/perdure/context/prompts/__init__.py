"""Prompt texts, one file each."""

from __future__ import annotations

import functools
from importlib import resources

from perdure.core.agents import DEFAULT_AGENT_TYPE
from perdure.core.tools.loops import loop_of

__all__ = ["base_prompt", "extraction_prompt", "summary_prompt"]


@functools.cache
def base_prompt(agent_type: str = DEFAULT_AGENT_TYPE, prompt: str = "full") -> str:
    """Return the base prompt of an agent of this type without its own. `prompt`: its setting of this name."""
    name = loop_of(agent_type, {}).prompt
    return _text("small.txt" if prompt == "small" and name == "base" else f"{name}.txt")


@functools.cache
def summary_prompt() -> str:
    """Return the prompt of a summariser, with the places `{words}` and `{characters}` for the limit."""
    return _text("summary.txt")


@functools.cache
def extraction_prompt() -> str:
    """Return the instructions of an extractor of facts."""
    return _text("extraction.txt")


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8").strip()
