"""What fills the window: how many tokens of it go to what, by the certificate that the engine sends requests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perdure.context.request.explain import share_out
from perdure.context.window.budget import Certificate, SegmentName

__all__ = ["ContextOverview", "ContextPart"]


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of a request, in the order of the request.

    Args:
        tokens: its share of what the request takes by the corrected estimate.
        estimated_tokens: the upper estimate of it alone, not corrected.
    """

    name: SegmentName
    tokens: int
    estimated_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOverview:
    """How a conversation's window is filled: what its next request takes before anything more is said, what is kept
    free for the answer, and what is left.

    `parts` + `reserve_tokens` + `free_tokens` are `window_tokens`, unless more is in view than fits: then
    `free_tokens` is 0 and `over_tokens` says how much has to go before the next request.

    Args:
        model: the agent's model.
        sent: the prefix is the one that was sent last; False: it is what the next request will begin with.
        rewrite: why the next request begins with a new prefix; None: it does not.
        measured_tokens: what the provider counted of the last request, if the estimate is corrected by exactly that;
            None: nothing was measured of this view, so all of it is estimated.
        message_count: rows in view, the engine's own included.
        hidden_messages: messages that left the view, for which summaries stand; `nodes` are the summaries' handles.
        stubs: row number -> characters: the rows of which only so much is shown.
        pending_edits: memory edits that the next request will tell the model of; their tokens are among the messages'.
    """

    model: str
    certificate: Certificate
    sent: bool
    rewrite: str | None = None
    measured_tokens: int | None = None
    message_count: int = 0
    hidden_messages: int = 0
    nodes: tuple[str, ...] = ()
    stubs: Mapping[int, int] = field(default_factory=dict)
    pending_edits: int = 0

    @property
    def parts(self) -> tuple[ContextPart, ...]:
        segments = self.certificate.segments
        shares = share_out([segment.tokens for segment in segments], self.certificate.tokens)
        return tuple(
            ContextPart(segment.name, tokens, segment.tokens) for segment, tokens in zip(segments, shares, strict=True)
        )

    @property
    def window_tokens(self) -> int:
        return self.certificate.window_tokens

    @property
    def reserve_tokens(self) -> int:
        return self.certificate.reserve_tokens

    @property
    def estimated_tokens(self) -> int:
        """The upper estimate, not corrected."""
        return self.certificate.estimated_tokens

    @property
    def used_tokens(self) -> int:
        """The corrected estimate."""
        return self.certificate.tokens

    @property
    def free_tokens(self) -> int:
        return max(0, self.certificate.budget_tokens - self.used_tokens)

    @property
    def over_tokens(self) -> int:
        return self.certificate.over_tokens
