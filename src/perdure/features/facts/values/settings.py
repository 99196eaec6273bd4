"""Settings of an agent's facts, and of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from perdure.core.errors import InvalidInput
from perdure.core.tools.schema import check_schema
from perdure.domain.values import check_names, check_range
from perdure.features.facts.values.extraction import FactType, Schema
from perdure.features.facts.values.facts import ENTITY_TYPES

FACT_SETTINGS = "facts"
"""The name of this feature's field in the settings of an agent."""
_NAME_CHARS = 200
PROMPT_CHARS = 10_000

CaptureMode = Literal["on", "ask", "off"]
ExtractorName = Literal["default", "patterns", "model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """When facts fade out of recall and search: when they are worth less than `min_score`.

    A fact is worth its rating, 0 to 1, halved with each half-life of its age.

    Args:
        on: whether that happens by itself, about once a day; otherwise only `tidy` does it.
        half_life_days: the days in which a fact that nobody uses loses half of its worth.
        min_score: the worth, 0 to 1, below which a fact fades.
        min_age_days: no younger fact fades.
    """

    on: bool = False
    half_life_days: float = 180.0
    min_score: float = 0.1
    min_age_days: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """The facts of one agent.

    Args:
        capture: `off` extracts nothing; `ask` stores facts as proposals, which a person accepts.
        extractor: `patterns` needs no model; `default` is what the server is set to.
        batch_turns, batch_tokens: extraction waits until so many messages, or tokens of them, are there.
        recall: the most facts that automatic recall adds to a request.
        recall_messages: the newest messages whose entities recall looks up.
        use_untrusted: whether facts from tools, the web and files may stand in profiles and in recall.
        forgetting: when facts fade; `true` and `false` are `on` with the defaults, and off.
    """

    capture: CaptureMode = "on"
    extractor: ExtractorName = "default"
    batch_turns: int = 8
    batch_tokens: int = 2_000
    recall: int = 5
    recall_messages: int = 4
    use_untrusted: bool = False
    forgetting: Forgetting = Forgetting()


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSettings:
    """The settings of a graph.

    Args:
        paused: whether extraction waits.
        entity_types: type -> the JSON schema of its attributes, empty without any.
        fact_types: name -> `Subject -> Object`, such as `EMPLOYMENT: Person -> Organization`.
        prompt: added to the extractor's instructions.
        reflect: a second pass looks for missed entities when the first is not certain.
        slots: slot of a profile, such as `work.title` -> the relations whose objects stand in it.
        strict_slots: only these slots; otherwise other relations of the user get slots of their own.
    """

    paused: bool = False
    entity_types: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {name: {} for name in ENTITY_TYPES})
    fact_types: Mapping[str, str] = field(default_factory=dict)
    prompt: str = ""
    reflect: bool = True
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    strict_slots: bool = False

    @property
    def schema(self) -> Schema:
        """The types as an extractor reads them."""
        types = []
        for name, signature in self.fact_types.items():
            subject, _, object_ = signature.partition("->")
            types.append(FactType(name=name, subject_type=subject.strip(), object_type=object_.strip()))
        return Schema(entity_types=self.entity_types, fact_types=types)


T = TypeVar("T", AgentFacts, GraphSettings)


def load_agent_facts(settings: Mapping[str, Any]) -> AgentFacts:
    """Return how facts are extracted for an agent, from all its settings; a missing field has its default. The field
    may also be `true` or `false`: capture and recall are on, or off, with the defaults."""
    value = settings.get(FACT_SETTINGS)
    if isinstance(value, bool):
        return AgentFacts(capture="on" if value else "off", recall=5 if value else 0)
    if not isinstance(value, Mapping):
        return AgentFacts()
    fading = value.get("forgetting", False)
    forgetting = Forgetting(on=fading) if isinstance(fading, bool) else Forgetting(**fading)
    return AgentFacts(**{**value, "forgetting": forgetting})


def load_graph_settings(settings: Mapping[str, Any]) -> GraphSettings:
    """Return the settings of a graph, as stored, with defaults for missing fields."""
    slots = {slot: tuple(relations) for slot, relations in settings.get("slots", {}).items()}
    return GraphSettings(**{**settings, "slots": slots})


def check_agent_facts(settings: Mapping[str, Any]) -> None:
    """Check the field `facts` in the settings of an agent. Raises: InvalidInput, naming field and value."""
    value = settings.get(FACT_SETTINGS)
    if value is None or isinstance(value, bool):
        return
    if not isinstance(value, Mapping):
        raise InvalidInput(f"facts is {value!r:.80}: give true, false, or an object with its fields")
    check_names("facts", value, AgentFacts)
    fading = value.get("forgetting", False)
    if not isinstance(fading, bool | Mapping):
        raise InvalidInput(f"facts.forgetting is {fading!r:.80}: give true, false, or an object with its fields")
    if isinstance(fading, Mapping):
        check_names("facts.forgetting", fading, Forgetting)
    facts = load_agent_facts(settings)
    if facts.capture not in ("on", "ask", "off"):
        raise InvalidInput(f"facts.capture is {facts.capture!r:.80}: give 'on', 'ask' or 'off'")
    if facts.extractor not in ("default", "patterns", "model"):
        raise InvalidInput(f"facts.extractor is {facts.extractor!r:.80}: give 'default', 'patterns' or 'model'")
    check_range("facts.batch_turns", facts.batch_turns, 1, 100)
    check_range("facts.batch_tokens", facts.batch_tokens, 100, 20_000)
    check_range("facts.recall", facts.recall, 0, 50)
    check_range("facts.recall_messages", facts.recall_messages, 1, 50)
    for name, low, high in (("half_life_days", 1, 36_500), ("min_score", 0, 1), ("min_age_days", 0, 36_500)):
        check_range(f"facts.forgetting.{name}", getattr(facts.forgetting, name), low, high, whole=False)
    for name, value in (("forgetting.on", facts.forgetting.on), ("use_untrusted", facts.use_untrusted)):
        if not isinstance(value, bool):
            raise InvalidInput(f"facts.{name} is {value!r:.80}: give true or false")


def plain_graph_settings(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a graph's settings as they are stored: a pydantic model as an entity type gives its JSON schema."""
    types = settings.get("entity_types")
    if not isinstance(types, Mapping):
        return settings
    schemas = {name: getattr(one, "model_json_schema", lambda one=one: one)() for name, one in types.items()}
    return {**settings, "entity_types": schemas}


def check_graph_settings(settings: Mapping[str, Any]) -> GraphSettings:
    """Check settings of a graph, and return them with defaults. Raises: InvalidInput, naming field and value."""
    check_names("a graph", settings, GraphSettings)
    for name in ("paused", "reflect", "strict_slots"):
        if not isinstance(settings.get(name, False), bool):
            raise InvalidInput(f"{name} is {settings[name]!r:.80}: give true or false")
    for name in ("entity_types", "fact_types", "slots"):
        if not isinstance(settings.get(name, {}), Mapping):
            raise InvalidInput(f"{name} is {settings[name]!r:.80}: give an object")
        if long := next((key for key in settings.get(name, {}) if len(str(key)) > _NAME_CHARS), None):
            raise InvalidInput(f"{name} has {long!r:.80}: names have at most {_NAME_CHARS} characters")
    for name, schema in settings.get("entity_types", {}).items():
        if not isinstance(schema, Mapping):
            raise InvalidInput(
                f"entity_types.{name:.80} is {schema!r:.80}: give a pydantic model, a JSON schema, or an empty object"
            )
        check_schema(schema)
    for name, signature in settings.get("fact_types", {}).items():
        if not isinstance(signature, str) or "->" not in signature:
            raise InvalidInput(
                f"fact_types.{name:.80} is {signature!r:.80}: give a signature such as 'Person -> Organization'"
            )
    for slot, relations in settings.get("slots", {}).items():
        if not isinstance(relations, list | tuple) or not all(isinstance(relation, str) for relation in relations):
            raise InvalidInput(f"slots.{slot:.80} is {relations!r:.80}: give a list of relations, such as ['WORKS_AS']")
    prompt = settings.get("prompt", "")
    if not isinstance(prompt, str) or len(prompt) > PROMPT_CHARS:
        raise InvalidInput(f"prompt is {prompt!r:.80}: give a text of at most {PROMPT_CHARS:,} characters")
    return load_graph_settings(settings)
