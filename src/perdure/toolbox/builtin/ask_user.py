"""`ask_user`: end the run with a question. The user's next message is the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.core.errors import InvalidArguments
from perdure.core.messages import Question
from perdure.core.tools.spec import ToolOutcome

OPTIONS_MAX = 20
OPTION_CHARS = 300
QUESTION_CHARS = 5_000


def ask_user(arguments: Mapping[str, Any]) -> ToolOutcome:
    """An outcome with the question. Raises: InvalidArguments: it is empty or too long."""
    text = str(arguments["question"]).strip()
    options = tuple(" ".join(str(option).split()) for option in arguments.get("options") or ())
    if not text or len(text) > QUESTION_CHARS:
        raise InvalidArguments("ask_user", f"'question' needs 1 to {QUESTION_CHARS:,} characters, not {len(text):,}")
    if len(options) > OPTIONS_MAX or not all(0 < len(option) <= OPTION_CHARS for option in options):
        raise InvalidArguments("ask_user", f"'options' are up to {OPTIONS_MAX} texts of 1 to {OPTION_CHARS} characters")
    return ToolOutcome(text="Asked. The user's next message is the answer.", question=Question(text, options))
