"""What a model does about tools, in words."""

from __future__ import annotations

from perdure.core.models import ModelTraits


def describe_calling(traits: ModelTraits) -> str:
    """What a model does about tools, as the rest of a sentence about it."""
    if not traits.takes_tools:
        return "is offered no tools: its server or its template takes none"
    match traits.calling:
        case "native":
            return "calls tools"
        case "text":
            return "writes its tool calls as text, which Perdure reads"
        case "none":
            return "calls no tools; memory is kept and recalled for it without its help"
        case None:
            return "has not called a tool yet"
