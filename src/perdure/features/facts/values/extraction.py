"""What an extractor reads, and what it returns: new entities and facts, and decisions about known ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from perdure.core.sources import TrustLabel
from perdure.features.facts.values.facts import ENTITY_TYPES, Entity, EpisodeKind, Fact, FactRule

USER = "User"
"""The name of an agent's user until it is known."""

NO_ANSWER = "answer is not JSON"
"""The reason in `Extraction.dropped` for a whole answer that can't be read: the batch is tried again."""

Decision = Literal["ADD", "UPDATE", "SUPERSEDE", "DELETE", "NONE"]
"""What an extracted fact means for a known one. ADD: it is new. UPDATE: it says the known one better or more fully.
SUPERSEDE: it is true instead of the known one from its `valid_at` on. DELETE: the known one was never true.
NONE: the known one says it already, and gains a source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenTurn:
    """One episode of a batch as the extractor reads it.

    Attributes:
        number: in the batch, from 1; extracted facts name it as their source.
        speaker: the name of the one who says it.
        occurred_at: in the time zone of the speaker, which decides what "yesterday" is.
        is_user: whether a user of the agent says it: facts about "I" are about the speaker then.
        kind: of a JSON document the text has a line for each value, with the path to it.
    """

    number: int
    speaker: str
    text: str
    occurred_at: datetime
    trust: TrustLabel = "user"
    is_user: bool = True
    kind: EpisodeKind = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactType:
    """A type of fact with the types of its two entities, such as `EMPLOYMENT: Person -> Organization`."""

    name: str
    subject_type: str
    object_type: str
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The types that a graph knows: of entities, name -> the JSON schema of its attributes, `{}` for none; of facts."""

    entity_types: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {name: {} for name in ENTITY_TYPES})
    fact_types: Sequence[FactType] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBatch:
    """What one extraction reads.

    Attributes:
        turns: the episodes to extract from, in order.
        context: earlier turns, for pronouns only.
        entities: known entities that the turns may mean; an extractor names one by its place in this list, from 1.
        facts: known facts that the turns may concern, by their place likewise.
        prompt: what the user adds to the extractor's instructions.
        reflect: whether a second pass may look for missed entities when the first is not certain.
        limit_s: how long each call of a model may take; None: as long as it takes.
    """

    turns: Sequence[SpokenTurn]
    context: Sequence[SpokenTurn] = ()
    entities: Sequence[Entity] = ()
    facts: Sequence[Fact] = ()
    rules: Sequence[FactRule] = ()
    schema: Schema = field(default_factory=Schema)
    prompt: str = ""
    reflect: bool = True
    limit_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedEntity:
    """An entity as an extractor found it.

    Attributes:
        known: which entity of `ReadBatch.entities` it is, from 1; None: the one with its name, if there is one; 0: a
            new entity, although a known one has its name.
        is_new_name: whether the known entity is called so from now on; its former name becomes an alias.
    """

    name: str
    type: str = "Concept"
    known: int | None = None
    is_new_name: bool = False
    aliases: tuple[str, ...] = ()
    summary: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedFact:
    """A fact as an extractor found it, not validated yet.

    Attributes:
        subject, object: names of entities of the same extraction.
        valid_at, invalid_at: ISO 8601, or None; without an offset in the time zone of the turns.
        turns: the numbers of the turns that say it.
        rating: how much it matters, 0 to 1.
        known: the fact of `ReadBatch.facts` that the decision is about, from 1; None: a decision about no known fact.
        replaces: in place of `known` an earlier fact of this answer that the decision is about, from 1.
    """

    subject: str
    relation: str
    object: str
    text: str
    turns: tuple[int, ...]
    type: str | None = None
    valid_at: str | None = None
    invalid_at: str | None = None
    rating: float = 0.5
    decision: Decision = "ADD"
    known: int | None = None
    replaces: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """The answer of an extractor.

    Attributes:
        certain: whether the extractor is sure that no entity is missing.
        dropped: reason -> how many entities or facts of the answer were left out for it.
        model: the name of the model or program.
        calls: how many model calls it took, which used `input_tokens` and `output_tokens` together.
    """

    entities: Sequence[ExtractedEntity] = ()
    facts: Sequence[ExtractedFact] = ()
    certain: bool = True
    dropped: Mapping[str, int] = field(default_factory=dict)
    model: str = ""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Extractor(Protocol):
    """What derives entities and facts from a batch: a model, or patterns without one."""

    async def extract(self, batch: ReadBatch) -> Extraction:
        """Return what the turns of a batch say. Raises: ModelError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunityFacts:
    """What a summary of a community is made from: the names of its members and the texts of its best facts."""

    name: str
    members: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


@runtime_checkable
class Summarizer(Protocol):
    """An extractor that can also summarize communities, by the model of this handle, such as `openai/gpt-4o`."""

    handle: str

    async def summarize(self, communities: Sequence[CommunityFacts]) -> Sequence[str]:
        """Return a summary of each, in order; empty where there is none. Raises: ModelError."""


FindExtractor = Callable[[str, str], Extractor | None]
"""Returns the extractor by the agent's setting (`default`, `patterns` or `model`) and the agent's model; None: facts
are off."""
