"""An agent file without what the agent has forgotten.

Forgetting leaves a text where only `undo` finds it, and where people speak of the agent: in values that blocks had,
facts that are believed no longer, names, schedules, settings. A file goes to others, so it reads there as if the text
was erased. What is in view holds none of it, but where somebody has said it again since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perdure.core.forgetting.corrections import TITLE_CHARS, Correction
from perdure.core.forgetting.redaction import REDACTED
from perdure.domain.conversations.agent_copies import copy_parts
from perdure.domain.conversations.copy_values import HiddenText
from perdure.features.agent_files.reading import NAME

_SAID_OF_AGENT = ("system", "description", "metadata", "tags")
_CHOSEN = ("name", "secrets", "tool_exec_environment_variables", "messages", *_SAID_OF_AGENT)
"""Fields of an agent that are no settings."""


def hide_forgotten(document: dict[str, Any], forgotten: Sequence[Correction]) -> None:
    """Replace in a file what was forgotten."""
    for one in forgotten:
        text = one.text.removesuffix("…") if len(one.text) == TITLE_CHARS else one.text
        if text != REDACTED:  # it was erased since
            _hide(document, HiddenText(text, one.created_at))


def _hide(document: dict[str, Any], text: HiddenText) -> None:
    """Replace one text in the file."""
    (agent,) = document["agents"]
    settings = {name: value for name, value in agent.items() if name not in _CHOSEN}
    agent |= text.redactor.redact_choices(settings)
    text.redact([agent], _SAID_OF_AGENT)
    text.redact(agent["messages"][:1], ("content",))  # the system message
    text.redact(agent["messages"][1:], ("name", "otid"), text.is_old)
    text.redact(document["blocks"], ("description", "metadata", "tags"))
    text.redact(document["sources"], ("description", "instructions", "metadata"))
    text.redact(document["files"], ("file_name",))
    for copy in document["metadata"][NAME]["agents"].values():
        _hide_in_copy(copy, text)


def _hide_in_copy(copy: dict[str, Any], text: HiddenText) -> None:
    copy["settings"] = text.redactor.redact_choices(copy["settings"])
    text.redact(copy["passages"], ("sources", "state_origin"), text.is_old)
    for part in copy_parts():
        if part.name in copy:
            part.hide(copy[part.name], text)
    text.redact(copy["conversations"], ("summary", "description", "options"))
    for line in copy["conversations"]:
        text.redact(line["messages"], ("name", "otid"), text.is_old)
    for of_block in copy["block_values"].values():
        for one in filter(text.is_old, of_block[:-1]):
            one["value"] = text.redactor.drop_lines(one["value"])
