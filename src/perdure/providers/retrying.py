"""Retry requests that fail for a moment: for a bounded time, and never after a reader has seen output."""

from __future__ import annotations

import asyncio
import random as randomness
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace

from perdure.core.errors import ModelError, ModelLoading, ModelTimeout
from perdure.core.incoming.backoff import backoff_s
from perdure.core.models import Exchange, Model, ModelPiece, ModelProgress, ModelReply, ModelRequest
from perdure.core.runs import NO_USAGE
from perdure.providers.provider import ModelWrapper


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how soon and how long a request is retried.

    Args:
        retries: tries after the first.
        first_delay_s: the wait before the second try; each later one is `factor` times as long, `max_delay_s` at most.
        jitter: the part of a wait that is random, 0 to 1, so that many callers don't retry at the same moment.
        deadline_s: how long after the first try another one may begin. An answer that comes may take longer.
        silence_s: how long a try may yield nothing.
        loading_s: how long a server may take to load the model, and `loading_pause_s` how often it is asked meanwhile;
            these tries don't count.
    """

    retries: int = 3
    first_delay_s: float = 0.5
    factor: float = 2.0
    max_delay_s: float = 30.0
    jitter: float = 0.5
    deadline_s: float = 600.0
    silence_s: float = 660.0
    loading_s: float = 120.0
    loading_pause_s: float = 2.0


def delay_s(policy: RetryPolicy, tries: int, *, retry_after_s: float | None, chance: float) -> float:
    """The wait after this many tries, in seconds: exponential, with jitter, but never less than the provider asks for.

    Args:
        tries: made so far, from 1.
        chance: 0 <= chance < 1.
    """
    backoff = backoff_s(tries, first_s=policy.first_delay_s, most_s=policy.max_delay_s, factor=policy.factor)
    return max(backoff * (1 - policy.jitter * chance), retry_after_s or 0.0)


class Retrying(ModelWrapper):
    """A model whose requests are retried after a `ModelError` that is `retryable`.

    Nothing is retried after the first piece of output: a reader must never see an answer begin twice. A wait that the
    provider asks for is kept; if the deadline does not allow it, the error is raised at once. The error of several
    tries says how many, and has the tokens of all.

    Args:
        random: returns numbers from 0 to 1, for the jitter.
    """

    def __init__(
        self, model: Model, *, policy: RetryPolicy | None = None, random: Callable[[], float] = randomness.random
    ) -> None:
        super().__init__(model)
        self.policy = policy or RetryPolicy()
        self._random = random

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        """Answer a request by the model, with retries. Raises: ModelError: that of the last try."""
        clock = asyncio.get_running_loop().time
        start = clock()
        tries, usage = 0, NO_USAGE
        while True:
            tries += 1
            started = False
            pieces = self.model.respond(request)
            try:
                while (piece := await self._next(pieces, started_output=started)) is not None:
                    started = started or not isinstance(piece, ModelProgress)
                    yield _with_tries(piece, tries)
                return
            except ModelError as error:
                error.usage = usage = usage + error.usage
                if started:
                    raise
                waited_s = clock() - start
                delay: float | None
                if isinstance(error, ModelLoading) and waited_s < self.policy.loading_s:
                    tries, delay = tries - 1, self.policy.loading_pause_s
                    yield ModelProgress(stage="loading", waited_s=waited_s)
                else:
                    delay = self._delay(error, tries, left_s=self.policy.deadline_s - waited_s)
                if delay is None:
                    raise _describe(error, tries, elapsed_s=waited_s) from error.__cause__
            finally:
                if (close := getattr(pieces, "aclose", None)) is not None:
                    await close()
            await asyncio.sleep(delay)

    async def _next(self, pieces: AsyncIterator[ModelPiece], *, started_output: bool) -> ModelPiece | None:
        """The next piece, if it comes in time. Raises: ModelError."""
        try:
            async with asyncio.timeout(self.policy.silence_s) as limit:
                return await anext(pieces, None)
        except TimeoutError as error:
            if not limit.expired():
                raise
            what = "go on with its answer" if started_output else "begin to answer"
            raise ModelTimeout(f"the model did not {what} within {self.policy.silence_s:g} s") from error

    def _delay(self, error: ModelError, tries: int, *, left_s: float) -> float | None:
        """How long to wait before the next try; None when there is none."""
        if not error.retryable or tries > self.policy.retries:
            return None
        delay = delay_s(self.policy, tries, retry_after_s=error.retry_after_s, chance=self._random())
        return delay if delay < left_s else None


def _with_tries(piece: ModelPiece, tries: int) -> ModelPiece:
    """The piece; a reply with the number of tries in its exchange."""
    if tries > 1 and isinstance(piece, ModelReply) and piece.exchange is not None:
        return replace(piece, exchange=replace(piece.exchange, attempts=tries))
    return piece


ASKED_WAIT = re.compile(r"it asks to wait ([0-9.]+) s")
"""What a text of `_describe` says of the provider's wait."""


def _describe(error: ModelError, tries: int, *, elapsed_s: float) -> ModelError:
    """The error, with the number of tries in its text."""
    notes = []
    if tries > 1:
        notes.append(f"tried {tries} times in {elapsed_s:.1f} s")
    if error.retryable and error.retry_after_s:
        notes.append(f"it asks to wait {error.retry_after_s:g} s")
    if notes:
        error.args = (f"{error} ({'; '.join(notes)})",)
    if isinstance(error.exchange, Exchange):
        error.exchange = replace(error.exchange, attempts=tries)
    return error
