"""The options of a model's answer among settings: each has the type that `ModelOptions` gives it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from perdure.core.agents import AUTOCLEAR
from perdure.core.errors import InvalidInput
from perdure.core.models import ReasoningEffort
from perdure.core.text.reprs import describe_value
from perdure.domain.values import check_json, check_range

_MOST = {"temperature": 2, "top_p": 1, "max_output_tokens": 2**53, "max_reasoning_tokens": 2**53, "top_logprobs": 100}
_FLAGS = ("parallel_tool_calls", "logprobs", "token_ids", AUTOCLEAR)


def check_options(settings: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Check the options that are not as they were before. Raises: InvalidInput, naming option and value."""
    for name, value in settings.items():
        if value is None or value == before.get(name):
            continue
        helps = ""
        if name in _MOST:
            check_range(name, value, 0, _MOST[name], whole=name not in ("temperature", "top_p"))
        elif name in ("response_format", "extra"):
            check_json(name, value)
        elif name in _FLAGS:
            helps = "" if isinstance(value, bool) else "True or False"
        elif name == "reasoning_effort":
            helps = "" if value in get_args(ReasoningEffort) else f"one of {', '.join(get_args(ReasoningEffort))}"
        elif name == "tool_choice" and value not in ("auto", "required", "none"):
            names = value if isinstance(value, list | tuple) else ()
            are_names = names and all(isinstance(one, str) for one in names)
            helps = "" if are_names else "auto, required, none or a list of names of tools"
        if helps:
            raise InvalidInput(f"{name} is {describe_value(value)}: give {helps}")
