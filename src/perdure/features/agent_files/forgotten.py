"""An agent file without what the agent has forgotten.

Forgetting leaves a text where only `undo` finds it, and where people speak of the agent: in values that blocks had,
facts that are believed no longer, names, schedules, settings. A file goes to others, so it reads there as if the text
was erased. What is in view holds none of it, but where somebody has said it again since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from perdure.core.forgetting.redaction import NO_RELATION, REDACTED, Redactor
from perdure.core.forgetting.values import TITLE_CHARS, Correction
from perdure.domain.agents.copies import copy_parts
from perdure.features.agent_files.reading import NAME

_SAID_OF_AGENT = ("system", "description", "metadata", "tags")
_CHOSEN = ("name", "secrets", "tool_exec_environment_variables", "messages", *_SAID_OF_AGENT)
"""Fields of an agent that are no settings."""
_OF_ENTITIES = ("name", "summary", "aliases", "attributes")
_TEXTS = {
    "facts": ("scope", "origin"),
    "episodes": ("text", "scope"),
    "rules": ("text", "entity_name"),
    "passages": ("sources", "state_origin"),
}
"""List of Perdure's own part -> the fields with texts that are not in view."""

_Rows = list[dict[str, Any]]


def hide_forgotten(document: dict[str, Any], forgotten: Sequence[Correction]) -> None:
    """Replace in a file what was forgotten."""
    for one in forgotten:
        text = one.text.removesuffix("…") if len(one.text) == TITLE_CHARS else one.text
        if text != REDACTED:  # it was erased since
            _Hidden(Redactor(text), one.created_at).hide(document)


class _Hidden:
    """One text that was forgotten, and when."""

    def __init__(self, redactor: Redactor, at: datetime) -> None:
        self._redactor, self._at = redactor, at

    def hide(self, document: dict[str, Any]) -> None:
        """Replace it in the file."""
        (agent,) = document["agents"]
        settings = {name: value for name, value in agent.items() if name not in _CHOSEN}
        agent |= self._redactor.redact_choices(settings)
        self._redact([agent], _SAID_OF_AGENT)
        self._redact(agent["messages"][:1], ("content",))  # the system message
        self._redact(agent["messages"][1:], ("name", "otid"), self._is_old)
        self._redact(document["blocks"], ("description", "metadata", "tags"))
        self._redact(document["sources"], ("description", "instructions", "metadata"))
        self._redact(document["files"], ("file_name",))
        for copy in document["metadata"][NAME]["agents"].values():
            self._hide_in_copy(copy, copy["facts"])

    def _hide_in_copy(self, copy: dict[str, Any], facts: dict[str, Any]) -> None:
        # Forgetting writes a last version itself, so what counts is when a fact was first believed.
        old = {one["first_seq"] for one in facts["facts"] if one["seq"] == one["first_seq"] and self._is_old(one)}
        again = [one for one in facts["facts"] if one["first_seq"] not in old and self._redactor.finds(one["text"])]
        named = {one[end] for one in again if one["expired_at"] is None for end in ("subject", "object")}
        for part in (copy, facts):
            part["settings"] = self._redactor.redact_choices(part["settings"])
        for name, fields in {**_TEXTS, **{part.name: part.texts for part in copy_parts()}}.items():
            self._redact({**copy, **facts}.get(name, ()), fields, self._is_old)
        past = [one for one in facts["facts"] if one["expired_at"] is not None]
        self._redact(past, ("text",), lambda one: one["first_seq"] in old)
        self._redact([one for one in facts["entities"] if one["seq"] not in named], _OF_ENTITIES, self._is_old)
        for one in (*facts["facts"], *facts["rules"]):
            if (one.get("first_seq") in old or self._is_old(one)) and self._redactor.finds(one["relation"]):
                one["relation"] = NO_RELATION
        self._redact(copy["conversations"], ("summary", "description", "options"))
        for line in copy["conversations"]:
            self._redact(line["messages"], ("name", "otid"), self._is_old)
        for of_block in copy["block_values"].values():
            for one in filter(self._is_old, of_block[:-1]):
                one["value"] = self._redactor.drop_lines(one["value"])

    def _redact(
        self, rows: _Rows, fields: Sequence[str], which: Callable[[Mapping[str, Any]], bool] = lambda one: True
    ) -> None:
        """Replace it in these fields of rows; a list of names has each once."""
        for row in filter(which, rows):
            texts = {name: row[name] for name in fields if row.get(name) is not None}
            for name, after in self._redactor.redact_fields(texts).items():
                if after != row[name]:
                    row[name] = list(dict.fromkeys(after)) if name in ("tags", "aliases") else after

    def _is_old(self, row: Mapping[str, Any]) -> bool:
        """Whether a row was written before; then its text was not said anew."""
        return datetime.fromisoformat(row["created_at"]) <= self._at
