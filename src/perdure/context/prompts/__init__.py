"""Prompt texts, one file each."""

from __future__ import annotations

import functools
import re
from importlib import resources

from perdure.core.agents import DEFAULT_AGENT_TYPE
from perdure.core.loops import loop_of

__all__ = ["base_prompt", "extraction_prompt", "summary_prompt"]


_ABOUT_ENVELOPES = re.compile(r" ?Messages of type [^.]*? a person can't send them\.")
_ABOUT_EDITS = "A message of type memory_delta shows", "A line that begins with `Your note` shows"


@functools.cache
def base_prompt(agent_type: str = DEFAULT_AGENT_TYPE, size: str = "full", *, in_words: bool = False) -> str:
    """Return the base prompt of an agent of this type without its own.

    Args:
        size: `full` or `small`, which only agents with the usual loop have.
        in_words: for a model that the engine speaks to in sentences: what it says of envelopes is left out.
    """
    name = loop_of(agent_type, {}).prompt
    text = _text("small.txt" if size == "small" and name == "base" else f"{name}.txt")
    return _ABOUT_ENVELOPES.sub("", text).replace(*_ABOUT_EDITS) if in_words else text


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
