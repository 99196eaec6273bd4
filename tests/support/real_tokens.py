"""What a real tokenizer counts: o200k, whose ranks come in a package."""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any

from perdure.context.sections.tokens import IMAGE_TOKENS
from perdure.core.messages import CompactionNote, Image, Part, Reasoning, Text, ToolCall, ToolDecision, ToolResult
from perdure.core.models import ModelRequest

AROUND_A_MESSAGE = 4  # role and separators, as OpenAI's chat format has them


@functools.lru_cache(maxsize=4096)
def real_tokens(text: str) -> int:
    """The tokens of a text."""
    return len(_encoding().encode_ordinary(text.encode("utf-8", "replace").decode()))


def tokens_of_request(request: ModelRequest) -> int:
    """The tokens of all that a request holds."""
    tools = sum(real_tokens(json.dumps(dict(tool), ensure_ascii=False)) for tool in request.tools)
    messages = sum(AROUND_A_MESSAGE + sum(map(_tokens_of_part, message.parts)) for message in request.messages)
    texts = sum(map(real_tokens, (request.system, request.opening, request.tail)))
    return tools + texts + messages + AROUND_A_MESSAGE * (2 if request.opening else 1)


def _tokens_of_part(part: Part) -> int:
    match part:
        case Image():
            return IMAGE_TOKENS
        case Text() | Reasoning():
            return real_tokens(part.text)
        case ToolCall():
            return real_tokens(part.name) + real_tokens(part.arguments)
        case ToolResult():
            return real_tokens(part.text)
        case ToolDecision() | CompactionNote():
            return 0  # it is never sent


@functools.cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of how the package opens its own files
        import bpe_openai

        return bpe_openai.get_encoding("o200k_base")
