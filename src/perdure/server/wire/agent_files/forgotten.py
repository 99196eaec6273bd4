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
from perdure.server.wire.agent_files.own import NAME

_SAID_OF_AGENT = ("system", "description", "metadata", "tags")
_CHOSEN = ("name", "secrets", "tool_exec_environment_variables", "messages", *_SAID_OF_AGENT)
"""Fields of an agent that are no settings."""
_TEXTS = {
    "entities": ("name", "summary", "aliases", "attributes"),
    "facts": ("scope", "origin"),
    "episodes": ("text", "scope"),
    "rules": ("text", "entity_name"),
    "schedules": ("name", "messages"),
    "passages": ("sources", "state_origin"),
}
"""List of Perdure's own part -> the fields with texts that are not in view."""

_Rows = list[dict[str, Any]]


def without_forgotten(document: dict[str, Any], forgotten: Sequence[Correction]) -> dict[str, Any]:
    """The file with what was forgotten replaced."""
    for one in forgotten:
        text = one.text.removesuffix("…") if len(one.text) == TITLE_CHARS else one.text
        if text != REDACTED:  # it was erased since
            document = _Hidden(Redactor(text), one.created_at).hide(document)
    return document


class _Hidden:
    """One text that was forgotten, and when."""

    def __init__(self, redactor: Redactor, at: datetime) -> None:
        self._redactor, self._at = redactor, at

    def hide(self, document: dict[str, Any]) -> dict[str, Any]:
        """The file without it."""
        (agent,), part = document["agents"], document["metadata"][NAME]
        copies = {id_: self._copy(copy) for id_, copy in part["agents"].items()}
        return {
            **document,
            "agents": [self._agent(agent)],
            "blocks": self._rows(document["blocks"], ("description", "metadata", "tags")),
            "sources": self._rows(document["sources"], ("description", "instructions", "metadata")),
            "files": self._rows(document["files"], ("file_name",)),
            "metadata": {**document["metadata"], NAME: {**part, "agents": copies}},
        }

    def _agent(self, agent: dict[str, Any]) -> dict[str, Any]:
        settings = {name: value for name, value in agent.items() if name not in _CHOSEN}
        (agent,) = self._rows([agent | self._redactor.redact_choices(settings)], _SAID_OF_AGENT)
        lines = self._rows(agent["messages"][1:], ("name", "otid"), self._is_old)
        # The first one is the system message.
        first = self._rows(agent["messages"][:1], ("content",))
        return {**agent, "messages": [*first, *lines]}

    def _copy(self, copy: dict[str, Any]) -> dict[str, Any]:
        facts = copy["facts"]
        # Forgetting writes a last version itself, so what counts is when a fact was first believed.
        old = {one["first_seq"] for one in facts["facts"] if one["seq"] == one["first_seq"] and self._is_old(one)}
        again = [one for one in facts["facts"] if one["first_seq"] not in old and self._redactor.finds(one["text"])]
        named = {one[end] for one in again if one["expired_at"] is None for end in ("subject", "object")}
        rows = {name: self._rows(facts[name], _TEXTS[name], self._is_old) for name in ("facts", "episodes", "rules")}
        rows["facts"] = self._rows(
            rows["facts"], ("text",), lambda one: one["first_seq"] in old and one["expired_at"] is not None
        )
        for one in (*rows["facts"], *rows["rules"]):
            if (one.get("first_seq") in old or self._is_old(one)) and self._redactor.finds(one["relation"]):
                one["relation"] = NO_RELATION
        rows["entities"] = self._rows(
            facts["entities"], _TEXTS["entities"], lambda one: self._is_old(one) and one["seq"] not in named
        )
        values = {
            label: [*({**one, "value": self._line(one)} for one in of_block[:-1]), *of_block[-1:]]
            for label, of_block in copy["block_values"].items()
        }
        others = {name: self._rows(copy[name], _TEXTS[name], self._is_old) for name in ("schedules", "passages")}
        settings = self._redactor.redact_choices(facts["settings"])
        choices = self._redactor.redact_choices(copy["settings"])
        facts = {**facts, **rows, "settings": settings}
        return {**copy, **others, "facts": facts, "settings": choices, "block_values": values}

    def _line(self, value: Mapping[str, Any]) -> str:
        text: str = value["value"]
        return self._redactor.drop_lines(text) if self._is_old(value) else text

    def _rows(
        self, rows: _Rows, fields: Sequence[str], which: Callable[[Mapping[str, Any]], bool] = lambda one: True
    ) -> _Rows:
        """The rows without the text in these fields, each list with its members once."""
        found = []
        for row in rows:
            texts = {name: row[name] for name in fields if row.get(name) is not None} if which(row) else {}
            if (after := self._redactor.redact_fields(texts)) != texts:
                row = {**row, **{name: _once(after[name]) for name in texts}}
            found.append(row)
        return found

    def _is_old(self, row: Mapping[str, Any]) -> bool:
        """Whether a row was written before; then its text was not said anew."""
        return datetime.fromisoformat(row["created_at"]) <= self._at


def _once(value: Any) -> Any:
    is_names = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return list(dict.fromkeys(value)) if is_names else value
