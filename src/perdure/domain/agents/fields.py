"""How forms show the settings of agents: a field for each, from `settings.toml` here and in the folders of features.

A setting is a value, or an object whose fields are fields of the form too: `auto_recall.floor`. A feature's setting
that no file describes is one field of JSON.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perdure.core.errors import InvalidInput
from perdure.core.features import find_features

FieldKind = Literal["flag", "choice", "whole", "number", "text", "long", "lines", "json"]
"""Yes or no; one of several; a whole number; any number; a text; one of several lines; a list of texts; JSON."""

GROUPS: Mapping[str, str] = {
    "model": "Model",
    "context": "Context window",
    "memory": "Memory",
    "limits": "Limits",
    "tools": "Tools and files",
    "more": "More",
}
"""Group of settings -> its heading."""

_ON = "on"
"""The field of an object that `true` or `false` in the object's place stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingField:
    """A setting of agents, or a field of one, in a form.

    Args:
        path: the setting's name, and behind points those of fields in it.
        unit: what the number counts, behind it.
        default: what holds where it is not set, in words.
        choices: the values of a choice; empty: whoever shows the form knows them.
        least, most: the range of a number.
        is_rare: whether few people need it.
    """

    path: str
    group: str
    title: str
    kind: FieldKind
    help: str = ""
    unit: str = ""
    default: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    is_rare: bool = False

    @property
    def setting(self) -> str:
        """The name of the setting that it is, or belongs to."""
        return self.path.partition(".")[0]

    def holds(self, value: Any) -> bool:
        """Return whether the form can show this value in a field of this kind."""
        match self.kind:
            case "flag":
                return isinstance(value, bool)
            case "choice":
                return isinstance(value, str) and (not self.choices or value in self.choices)
            case "whole" | "number":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "text" | "long":
                return isinstance(value, str)
            case "lines":
                return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
            case "json":
                return True

    def parse(self, text: str) -> Any:
        """Return the value that a person wrote; None: nothing. Raises: InvalidInput."""
        text = text.strip()
        if not text:
            return None
        match self.kind:
            case "flag":
                return text == "yes"
            case "whole" | "number":
                return self._parse_number(text.replace(",", "").replace(" ", ""))
            case "lines":
                return [line.strip() for line in text.splitlines() if line.strip()]
            case _:
                return text

    def _parse_number(self, text: str) -> float:
        """Return the number in a text, without commas. Raises: InvalidInput."""
        try:
            return int(text) if self.kind == "whole" else float(text)
        except ValueError as error:
            number = "a whole number" if self.kind == "whole" else "a number"
            raise InvalidInput(f"{self.title} is {text!r:.40}: write {number}, or nothing") from error


@functools.cache
def setting_fields() -> Mapping[str, SettingField]:
    """The fields of all settings by their paths, those of the kernel first, in the order of their files."""
    return {field.path: field for field in [*_fields_in(Path(__file__).with_name("settings.toml")), *_of_features()]}


def _of_features() -> Iterator[SettingField]:
    """Yield the fields of the settings that features declare."""
    for feature in find_features():
        found = [*_fields_in(feature.folder / "settings.toml")]
        names = {field.setting for field in found}
        yield from (field for field in found if field.setting in feature.agent_settings)
        for name in feature.agent_settings.keys() - names:
            title = name.replace("_", " ").capitalize()
            yield SettingField(path=name, group="more", title=title, kind="json", default="not set")


def _fields_in(file: Path) -> Iterator[SettingField]:
    """Yield the fields that a file describes, in its order; none if there is no such file."""
    described = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    for path, values in described.items():
        yield SettingField(path=path, **{**values, "choices": tuple(values.get("choices", ()))})


def field_value(settings: Mapping[str, Any], path: str) -> Any:
    """Return the value of a field in an agent's settings; None: it is not set."""
    value: Any = settings.get(path.partition(".")[0])
    for name in path.split(".")[1:]:
        value = value.get(name) if isinstance(value, Mapping) else value if name == _ON else None
    if isinstance(value, Mapping) and _is_switch(path):
        return True if _is_off_by_default(path) else None
    return value


def _is_off_by_default(path: str) -> bool:
    """Whether giving this object turns something on that is off without it, rather than configuring what is on."""
    switch = setting_fields().get(path)
    return switch is not None and switch.default == "no"


def _is_switch(path: str) -> bool:
    """Return whether a field turns an object on and off whose fields are fields of the form too."""
    return any(other.startswith(f"{path}.") for other in setting_fields())


def with_fields(settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an agent's settings with new `values`, path -> value; None takes one back. Others stay."""
    changed = dict(settings)
    for name in dict.fromkeys(path.partition(".")[0] for path in values):
        own = {path: value for path, value in values.items() if path.partition(".")[0] == name}
        changed[name] = _with_own(changed, name, own) if _is_switch(name) else own[name]
    return {name: value for name, value in changed.items() if value is not None}


def _with_own(settings: Mapping[str, Any], name: str, values: Mapping[str, Any]) -> Any:
    """Return the setting `name`, an object, with new `values` of its fields; None: nothing is left of it."""
    is_on = values[name] if name in values else field_value(settings, name)
    made: dict[str, Any] = {name: settings.get(name)}
    for path, value in values.items():
        if path != name:
            _put(made, path.split("."), value)
    fields = made.get(name)
    if is_on is False:
        return False
    if is_on is None and _is_off_by_default(name):
        return None
    return fields if fields and isinstance(fields, Mapping) else is_on


def _put(value: dict[str, Any], names: Sequence[str], new: Any, within: str = "") -> None:
    """Set the field at `names` below the path `within`, or with None remove it and objects that are empty then."""
    first, *rest = names
    path = f"{within}.{first}" if within else first
    if rest:
        inner = value.get(first)
        stands_for_on = isinstance(inner, bool) and f"{path}.{_ON}" in setting_fields()
        made = {**inner} if isinstance(inner, Mapping) else {_ON: inner} if stands_for_on else {}
        _put(made, rest, new, path)
        new = made or None
    value.pop(first, None)
    if new is not None:
        value[first] = new
