"""Which model a helper runs on, and why. A pure function of four wishes, the models there are, and a policy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, Literal, get_args

from perdure.core.model_errors import ToolError
from perdure.core.text.tables import read_table
from perdure.features.helpers.model_names import is_same_model, version_of

ModelSource = Literal["PERDURE_SUBAGENT_MODEL", "call", "definition", "parent"]
"""What named the model; an earlier one counts before a later one."""

SOURCES: Final[tuple[ModelSource, ...]] = get_args(ModelSource)
INHERIT: Final = "inherit"
"""As a model: the parent's."""

_WORDS: Final[Mapping[ModelSource, str]] = {
    "PERDURE_SUBAGENT_MODEL": "PERDURE_SUBAGENT_MODEL says",
    "call": "the call says",
    "definition": "the definition says",
}
_BRACKET = re.compile(r"\[[^]]*\]$")

_MODEL_NAME = re.compile(r"arn:\S+|[^\s/]*[0-9][^\s/]*")
"""The whole name of some model, and no alias with a mistake."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Models of one kind, such as `sonnet`; see `families.toml`."""

    name: str
    match: Sequence[str]
    but: Sequence[str] = ()
    special: Sequence[str] = ()
    models: Sequence[str] = ()

    def has(self, handle: str) -> bool:
        """Return whether the model belongs to the family."""
        name = handle.partition("/")[2].lower()
        return _matches(name, self.match) and not _matches(name, self.but)

    def is_at(self, provider: str, known: Iterable[str]) -> bool:
        """Return whether a provider has models of it."""
        return any(place_of(one)[0] == provider for one in (*self.models, *filter(self.has, known)))


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model of a helper's run. `source`: what named it; `reason`: a sentence that says why."""

    model: str
    source: ModelSource
    reason: str


class ModelUnknown(ToolError):
    """No model is called `name`, which `source` gave, or none of that family is known. `near`: what is similar."""

    def __init__(self, name: str, source: ModelSource, known: Iterable[str]) -> None:
        handles = list(known)
        names = {handle.partition("/")[2]: handle for handle in handles} | {one: one for one in (*FAMILIES, *handles)}
        bare = _BRACKET.sub("", name[:80].lower())
        is_family = names.pop(ALIASES.get(bare, bare), None) in FAMILIES
        what = "none of that family is there" if is_family else "no model that is there is called so"
        near = list(dict.fromkeys(names[one] for one in get_close_matches(bare, names, n=3, cutoff=0.5)))
        hint = f"did you mean {' or '.join(near)}" if near else f"try {', '.join([*FAMILIES, INHERIT, *handles[:5]])}"
        super().__init__(f"{_WORDS[source]} {name[:80]!r}, and {what}; {hint}")
        self.name, self.source, self.near = name, source, near


class ModelForbidden(ToolError):
    """The policy allows neither the model nor another one of its family."""

    def __init__(self, model: str, family: str | None) -> None:
        other = "none that takes its place" if family is None else f"no older one of the family {family}"
        super().__init__(
            f"the policy does not allow the model {model} for helpers and commands, and {other}: ask an administrator"
        )
        self.model, self.family = model, family


def choose_model(
    wishes: Mapping[ModelSource, str | None],
    known: Sequence[str],
    *,
    is_there: Callable[[str], bool],
    allows: Callable[[str], bool],
) -> ModelChoice:
    """Return the model of a helper's run.

    The first of `SOURCES` with a wish counts. A wish is a handle, the name of a model, the alias of a family, or
    `inherit`. An alias of the parent's own family is the parent's exact model, with its provider and region; any other
    alias is the newest model of the family, at the parent's provider if it has one. A name is that of the same model
    at any provider, the parent's first. A definition may have been written where other models are: a name that is
    unknown counts there as the alias of its family, and where no model of that is known, the parent's is used. A model
    that the policy does not allow gives way to the newest allowed one of its family that is not newer.

    Args:
        wishes: source -> what it names; the parent's handle is always there.
        known: handles of the models that are known.
        is_there: whether a handle can be used, also one that is not among `known`.
        allows: whether the policy allows a handle.
    Raises: ModelUnknown, ModelForbidden.
    """
    source = next(source for source in SOURCES if (wishes.get(source) or "").strip())
    wish, parent = (wishes[source] or "").strip(), wishes["parent"] or ""
    says, name = f"{_WORDS.get(source, '')} {wish}", _BRACKET.sub("", wish)
    alias = ALIASES.get(name.lower(), name.lower())
    family = FAMILIES.get(alias)
    handle = None if family is not None else _find_named(wish, parent, known, is_there)
    if handle is None and family is None and source == "definition" and "/" not in name:
        family = family_of(f"/{name}")
        says = f"{says}, which is not here" if alias != INHERIT else says
    if source == "parent":
        choice = ModelChoice(parent, source, "nothing names another one: the model of the agent that calls")
    elif alias == INHERIT:
        choice = ModelChoice(parent, source, f"{says}: the model of the agent that calls")
    elif handle is not None:
        choice = ModelChoice(handle, source, says if handle == wish else f"{says}: {_place(handle, parent)}")
    elif family is not None and family.has(parent):
        choice = ModelChoice(parent, source, f"{says}, the family of the agent that calls: exactly its model")
    elif family is not None and (members := _members(family, known, is_there)):
        newest = _newest(members, parent)
        choice = ModelChoice(newest, source, f"{says}: the newest of the family {family.name} {_place(newest, parent)}")
    elif source == "definition" and (family is not None or _MODEL_NAME.fullmatch(name)):
        choice = ModelChoice(parent, source, f"{says}, and none of it is known: the model of the agent that calls")
    else:
        raise ModelUnknown(wish, source, known)
    if allows(choice.model):
        return choice
    family = family_of(choice.model)
    return _step_down(choice, () if family is None else _members(family, known, is_there), allows)


def family_of(handle: str) -> ModelFamily | None:
    """Return the first family that a model belongs to."""
    return next((family for family in FAMILIES.values() if family.has(handle)), None)


def _members(family: ModelFamily, known: Sequence[str], is_there: Callable[[str], bool]) -> Sequence[str]:
    """Return the known models of a family; if none is known, those of its list that can be used."""
    return [one for one in known if family.has(one)] or [model for model in family.models if is_there(model)]


def _step_down(choice: ModelChoice, members: Sequence[str], allows: Callable[[str], bool]) -> ModelChoice:
    """Return the newest allowed model of the same family that is not newer. Raises: ModelForbidden."""
    version = version_of(choice.model).number
    lower = [member for member in members if version_of(member).number <= version and allows(member)]
    if not lower:
        family = family_of(choice.model)
        raise ModelForbidden(choice.model, None if family is None else family.name)
    best = _newest(lower, choice.model)
    return replace(choice, model=best, reason=f"{choice.reason}; the policy does not allow {choice.model}, so {best}")


def _newest(handles: Sequence[str], near: str) -> str:
    """Return the newest of these models: those at `near`'s provider and region first, special forms last."""
    provider, region = place_of(near)

    def rank(handle: str) -> tuple[object, ...]:
        """What is larger for a better model; of the same version the shorter name, which is no special form."""
        place, family = place_of(handle), family_of(handle)
        is_special = family is not None and _matches(handle.partition("/")[2].lower(), family.special)
        order = -len(handle), [-ord(one) for one in handle]
        return place[0] == provider, place == (provider, region), not is_special, version_of(handle), order

    return max(handles, key=rank)


def place_of(handle: str) -> tuple[str, str]:
    """Return the provider of a handle, and the region before the model's name, if there is one."""
    provider, _, name = handle.partition("/")
    return provider, next((region for region in REGIONS if name.startswith(region)), "")


def _find_named(wish: str, parent: str, known: Sequence[str], is_there: Callable[[str], bool]) -> str | None:
    """Return the handle that a wish is, or of the model that it names, at the parent's provider first; else None."""
    if "/" in wish and (wish in known or is_there(wish)):
        return wish
    named = [handle for handle in known if handle.partition("/")[2] == wish]
    own = f"{place_of(parent)[0]}/{wish}"
    if own in named:
        return own
    if not named and (family := family_of(own)) and family.is_at(place_of(parent)[0], known) and is_there(own):
        return own
    name = _BRACKET.sub("", wish)
    named = named or [handle for handle in known if is_same_model(handle, name)]
    return _newest(named, parent) if named else None


def _place(handle: str, parent: str) -> str:
    """Return in words where a model is: at the parent's provider, or known at another one."""
    provider = place_of(handle)[0]
    return f"at {provider}" if provider == place_of(parent)[0] else f"that is known, at {provider}"


def _matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns matches."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_DATA = read_table(__file__, "families.toml")
REGIONS: Final[Sequence[str]] = _DATA["regions"]
FAMILIES: Final[Mapping[str, ModelFamily]] = {
    name: ModelFamily(name, **values) for name, values in _DATA["family"].items()
}
"""Alias -> family."""
ALIASES: Final[Mapping[str, str]] = _DATA["aliases"]
"""Another word -> the alias that it means, or `inherit`."""
