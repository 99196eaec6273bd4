"""Trying again: bounded, patient, and never after something was handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import (
    ModelAuthenticationFailed,
    ModelError,
    ModelLoading,
    ModelOverloaded,
    ModelRateLimited,
    ModelStreamCut,
    ModelTimeout,
)
from perdure.core.messages import Text
from perdure.core.models import Exchange, ModelDelta, ModelPiece, ModelProgress, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.providers.retrying import Retrying, RetryPolicy, delay_s

REQUEST = ModelRequest(model="openai/test", system="", messages=())
REPLY = ModelReply(parts=(Text("hi"),), exchange=Exchange(request={}, response={}))
QUICK = RetryPolicy(first_delay_s=0.001, max_delay_s=0.002)

Step = ModelPiece | ModelError | float


class Planned:
    """A model that does, at each request, the steps of the next list; a number is a wait."""

    def __init__(self, *answers: Sequence[Step]) -> None:
        self._answers = list(answers)
        self.call_count = 0
        self.open = 0

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelPiece]:
        self.call_count += 1
        self.open += 1
        try:
            for step in self._answers.pop(0):
                if isinstance(step, ModelError):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step
        finally:
            self.open -= 1


async def ask(model: Planned, policy: RetryPolicy = QUICK) -> list[ModelPiece]:
    return [piece async for piece in Retrying(model, policy=policy, random=lambda: 0.0).respond(REQUEST)]


async def test_what_fails_for_a_moment_is_tried_again() -> None:
    """The reply says how many attempts it took; no answer is left open."""
    model = Planned([ModelOverloaded("busy")], [ModelTimeout("late")], [ModelDelta("text", "hi"), REPLY])

    delta, reply = await ask(model)

    assert delta == ModelDelta("text", "hi")
    assert isinstance(reply, ModelReply)
    assert reply.exchange is not None
    assert reply.exchange.attempts == 3
    assert (model.call_count, model.open) == (3, 0)


async def test_a_first_try_changes_nothing() -> None:
    """The pieces are those of the model."""
    assert await ask(Planned([REPLY])) == [REPLY]


async def test_the_last_error_says_how_many_tries_were_made() -> None:
    """In its message and in its exchange; it has the tokens of all of them."""
    failures = [ModelOverloaded("busy") for _ in range(4)]
    failures[-1].exchange = Exchange(request={}, response={})
    failures[1].usage = failures[3].usage = Usage(input_tokens=7, output_tokens=1)
    model = Planned(*([failure] for failure in failures))

    with pytest.raises(ModelOverloaded, match=r"^busy \(tried 4 times in 0\.\d s\)$") as caught:
        await ask(model)

    assert caught.value is failures[-1]
    assert isinstance(caught.value.exchange, Exchange)
    assert caught.value.exchange.attempts == 4
    assert caught.value.usage == Usage(input_tokens=14, output_tokens=2)


async def test_what_will_not_succeed_is_not_tried_again() -> None:
    """A wrong key stays wrong; the message is as it was."""
    model = Planned([ModelAuthenticationFailed("wrong key")])

    with pytest.raises(ModelAuthenticationFailed, match=r"^wrong key$"):
        await ask(model)

    assert model.call_count == 1


async def test_a_server_that_loads_its_model_is_waited_for() -> None:
    """It is told of, and is no try; for ever it is an error."""
    policy = RetryPolicy(retries=0, loading_s=30, loading_pause_s=0)
    loading = ModelLoading("loading model")

    *told, reply = await ask(Planned(*([loading] for _ in range(5)), [REPLY]), policy)
    with pytest.raises(ModelLoading):
        await ask(Planned([loading]), replace(policy, loading_s=0))

    assert [piece.stage for piece in told if isinstance(piece, ModelProgress)] == ["loading"] * 5
    assert reply == REPLY


async def test_progress_is_no_output() -> None:
    """What fails after it is tried again."""
    progress = ModelProgress(stage="waiting", waited_s=5)

    pieces = await ask(Planned([progress, ModelStreamCut("cut")], [progress, REPLY]))

    assert [piece for piece in pieces if isinstance(piece, ModelProgress)] == [progress, progress]
    assert isinstance(pieces[-1], ModelReply)


async def test_an_answer_never_begins_twice() -> None:
    """Once a piece was handed out, the error goes on."""
    model = Planned([ModelDelta("text", "hi"), ModelStreamCut("cut")], [REPLY])
    pieces: list[ModelPiece] = []

    with pytest.raises(ModelStreamCut, match=r"^cut$"):
        async for piece in Retrying(model, policy=QUICK).respond(REQUEST):
            pieces += [piece]

    assert pieces == [ModelDelta("text", "hi")]
    assert (model.call_count, model.open) == (1, 0)


async def test_a_wait_that_is_asked_for_is_kept() -> None:
    """Though the policy would come back sooner."""
    loop = asyncio.get_running_loop()
    started = loop.time()

    await ask(Planned([ModelRateLimited("slow down", retry_after_s=0.05)], [REPLY]))

    assert loop.time() - started >= 0.05


async def test_a_wait_beyond_the_deadline_ends_it_at_once() -> None:
    """Nobody waits an hour for an answer; the error says what was asked."""
    model = Planned([ModelRateLimited("slow down", retry_after_s=3600)])

    with pytest.raises(ModelRateLimited, match=r"slow down \(it asks to wait 3600 s\)"):
        await asyncio.wait_for(ask(model), 50)

    assert model.call_count == 1


async def test_silence_ends_a_try_that_has_not_begun_to_answer() -> None:
    """And one that has, but does not go on."""
    policy = RetryPolicy(first_delay_s=0.001, retries=0, silence_s=0.05)

    with pytest.raises(ModelTimeout, match=r"0\.05 s"):
        await asyncio.wait_for(ask(Planned([30.0, REPLY]), policy), 50)

    with pytest.raises(ModelTimeout, match="go on"):
        await ask(Planned([ModelDelta("text", "hi"), 30.0, REPLY]), policy)


async def test_a_cancelled_caller_is_not_tried_for() -> None:
    """Neither in a try nor in the wait between two."""
    for model in (Planned([30.0, REPLY]), Planned([ModelOverloaded("busy")], [REPLY])):
        task = asyncio.ensure_future(ask(model, RetryPolicy(first_delay_s=30)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (model.call_count, model.open) == (1, 0)


@given(
    tries=st.integers(1, 2000), chance=st.floats(0, 1, exclude_max=True), model_request=st.none() | st.floats(0, 100)
)
def test_a_wait_is_bounded_and_never_shorter_than_asked(tries: int, chance: float, model_request: float | None) -> None:
    """It grows, with a share of chance, up to its limit."""
    policy = RetryPolicy()

    delay = delay_s(policy, tries, retry_after_s=model_request, chance=chance)

    assert (model_request or 0.0) <= delay <= max(policy.max_delay_s, model_request or 0.0)
    assert delay >= policy.first_delay_s * (1 - policy.jitter)
    assert delay_s(policy, 2, retry_after_s=None, chance=0) == 2 * policy.first_delay_s
