"""Where memories and answers come from, on the wire. No part of Letta's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from perdure.core.features import Point
from perdure.core.forgetting.corrections import Correction
from perdure.core.forgetting.redaction import ASCII_MIN, CHARS_MAX
from perdure.core.ids import ID_PATTERNS
from perdure.core.sources import TRUST_LABELS, WriteSource
from perdure.features.origins import values
from perdure.features.origins.origin_values import AnswerOrigin, MemoryOrigin
from perdure.features.origins.values import RevertConflict, RevertResult, SourceSummary, WriteText
from perdure.server.wire.base import WireRequest
from perdure.server.wire.fields import FILLED, keywords
from perdure.server.wire.shapes import Object, WireShape, computed


class MentionsIn(WireRequest):
    """What to look for: a text, or the id of a message or passage for all of its text."""

    text: Annotated[str, keywords(pattern=FILLED, minLength=ASCII_MIN, maxLength=CHARS_MAX)]


class ForgetIn(MentionsIn):
    """What to forget; `erase` removes it from the store's file, for good."""

    erase: bool = False


class UndoIn(WireRequest):
    """Which correction to undo; by default the last."""

    number: Annotated[int, keywords(minimum=1, maximum=2**53)] | None = None


class WireMention(WireShape, of=values.Mention, fields="place id name excerpt"):
    """An object in which the text was found."""


class WireMentions(WireShape, of=values.ForgetPreview, fields="text total in_view counts shared_with unended"):
    """Where a text stands."""

    mentions: list[WireMention]


class CorrectionShape(WireShape, of=Correction, fields="number kind text items created_at undone_at"):
    """A correction that can be undone."""


class Forgotten(WireShape, of=values.ForgetResult, fields="counts erased"):
    """What was forgotten; `correction` can be undone."""

    correction: CorrectionShape | None


class Undone(WireShape, of=values.UndoResult, fields="restored conflicts"):
    """What was undone, and why the rest was not."""

    correction: CorrectionShape


if TYPE_CHECKING:
    FactOriginShape = Object
else:  # the document describes it as the feature does
    FactOriginShape = next(iter(Point("fact_origin_shape").functions), Object)

WRITES_MAX = 1_000

SOURCE_CHARS = 600
_RUN, _BLOCK, _PASSAGE, _EPISODE = (ID_PATTERNS[kind].strip("^$") for kind in ("run", "block", "passage", "episode"))
SOURCE = rf"^((run:)?{_RUN}|({'|'.join(TRUST_LABELS)}):[ -~]*[!-~][ -~]*)$"
"""What a source looks like; the documented characters are a part of those that do."""
WRITE = rf"^({_BLOCK}@[0-9]{{1,9}}|{_PASSAGE}|{_EPISODE})$"

WriteId = Annotated[str, keywords(pattern=WRITE)]


class RevertIn(WireRequest):
    """The source or run of which all is taken back; with `dry_run` only say what would go."""

    source: Annotated[str, keywords(pattern=SOURCE, maxLength=SOURCE_CHARS)]
    dry_run: bool = False


class RevertWritesIn(WireRequest):
    """The writes to undo: block versions as `block-…@3`, passage and episode ids; `dry_run`: only report."""

    writes: Annotated[list[WriteId], keywords(minItems=1, maxItems=WRITES_MAX)]
    dry_run: bool = False


class SourceShape(
    WireShape, of=SourceSummary, fields="source.label source.name title blocks passages facts reverted first_at last_at"
):
    """A source of an agent's memory, with how many writes of each kind came from it and stand."""

    source: str = computed(lambda one: str(one.source))


class WriteSourceShape(WireShape, of=WriteSource, fields="message_ids"):
    """A source of a write, with the messages that brought it."""

    source: str = computed(lambda one: str(one.source))


class WriteShape(
    WireShape,
    of=WriteText,
    fields="write.id write.kind name write.label text stands write.agent_id write.run_id write.message_id"
    " write.created_at write.reverted_by",
    sources="write.sources",
):
    """A write of memory, and whether any of it is still there."""

    sources: list[WriteSourceShape]


class ConflictShape(WireShape, of=RevertConflict, fields="name reason value merged", write="write_id"):
    """A write that was not taken back, with what the block holds and would hold."""


class RevertShape(
    WireShape, of=RevertResult, fields="writes blocks passages facts correction dry_run conflicts", dry_run="is_dry_run"
):
    """What was taken back, or would be. `correction` undoes it."""

    conflicts: list[ConflictShape]


class MemoryOriginShape(
    WireShape,
    of=MemoryOrigin,
    fields="type kind id label line conversation_id text earlier_writes message_count source",
):
    """Where a memory comes from."""

    writes: list[Object]
    stands_for: list[Object]


class AnswerOriginShape(
    WireShape,
    of=AnswerOrigin,
    fields="type agent_id conversation_id run_id step_id message_id model model_reason at text tail problem",
):
    """What was in the request behind an answer."""

    blocks: list[Object]
    summaries: list[Object]
    recalled: list[Object]
    searches: list[Object]
    messages: list[Object]
