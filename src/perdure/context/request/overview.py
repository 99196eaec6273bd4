"""The overview of a window: the tokens of each part, by the engine's certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perdure.context.request.explain import SegmentUse, share_out
from perdure.context.window.budget import Certificate
from perdure.core.messages import Message
from perdure.core.text.reprs import short_repr


@dataclass(frozen=True, slots=True)
class ResultTokens:
    """The tokens of results in view that models see compressed or indexed: as tools returned them, and as shown."""

    whole_tokens: int = 0
    shown_tokens: int = 0

    @classmethod
    def of(cls, rows: Sequence[Message]) -> ResultTokens:
        """Return the sums over the rows of a view."""
        changed = [row for row in rows if any(result.whole_tokens is not None for result in row.results)]
        whole = sum(result.whole_tokens or 0 for row in changed for result in row.results)
        return cls(whole, sum(row.tokens for row in changed))

    @property
    def saved_share(self) -> float:
        """The share of the tokens that is not shown, from 0 to 1."""
        return max(0.0, 1 - self.shown_tokens / self.whole_tokens) if self.whole_tokens else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOverview:
    """The tokens of a conversation's next request before anything new is added, of the answer's reserve, and the rest.

    `parts` + `reserve_tokens` + `free_tokens` are `window_tokens`. If more is in view than fits, `free_tokens` is 0 and
    `over_tokens` says how much has to leave before the next request.

    Args:
        model: the agent's model.
        sent: whether the prefix was sent before; False: the next request begins with it.
        rewrite: why the next request begins with a new prefix; None: it does not.
        measured_tokens: the provider's count of the last request, if the estimate is corrected by it; None: this view
            was never measured.
        message_count: rows in view, including the engine's own.
        hidden_messages: messages that summaries replace; `nodes` are the summaries' handles.
        stubs: row number -> characters shown, of rows that are shown in part.
        results: what compressing and indexing saves in view.
        pending_edits: memory edits that the next request adds; their tokens are among the messages'.
    """

    __repr__ = short_repr("model", "used_tokens", "window_tokens")

    model: str
    certificate: Certificate
    sent: bool
    rewrite: str | None = None
    measured_tokens: int | None = None
    message_count: int = 0
    hidden_messages: int = 0
    nodes: tuple[str, ...] = ()
    stubs: Mapping[int, int] = field(default_factory=dict)
    results: ResultTokens = ResultTokens()
    pending_edits: int = 0

    @property
    def parts(self) -> tuple[SegmentUse, ...]:
        """The parts of the request in its order, with their shares of the corrected estimate."""
        segments = self.certificate.segments
        shares = share_out([segment.tokens for segment in segments], self.certificate.tokens)
        return tuple(
            SegmentUse(name=segment.name, estimated_tokens=segment.tokens, tokens=tokens)
            for segment, tokens in zip(segments, shares, strict=True)
        )

    @property
    def window_tokens(self) -> int:
        """The model's window."""
        return self.certificate.window_tokens

    @property
    def reserve_tokens(self) -> int:
        """Free room for the answer."""
        return self.certificate.reserve_tokens

    @property
    def estimated_tokens(self) -> int:
        """The upper estimate without correction."""
        return self.certificate.estimated_tokens

    @property
    def used_tokens(self) -> int:
        """The corrected estimate."""
        return self.certificate.tokens

    @property
    def free_tokens(self) -> int:
        """What is left of the window."""
        return max(0, self.certificate.budget_tokens - self.used_tokens)

    @property
    def over_tokens(self) -> int:
        """What has to leave before the next request."""
        return self.certificate.over_tokens
