"""A command that has helpers review code: four read at once on three models, then one verifies each finding."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from perdure import ModelReply, ModelRequest
from perdure.core.models import Model, ModelDelta
from perdure.testing import ScriptedModel, says
from tests.features.helpers.helper_office import define, helper_call, lead
from tests.support.office import ended_runs, results

REVIEWERS: Mapping[str, tuple[str, float, str]] = {
    "rules": ("small", 0.02, "F1: tabs in a.py"),
    "bugs": ("large", 0.04, "F2: off by one in b.py\nF3: unused name in b.py"),
    "history": ("middle", 0.03, "F4: the fix of last week is undone"),
    "comments": ("small", 0.01, "nothing"),
}
"""Helper -> its model, after how many seconds it answers once all have begun, what it finds."""
CONFIDENCE = {"F1": 60, "F2": 95, "F3": 79, "F4": 80}


class Slow:
    """A model that answers by what it is asked, once as many are asked at the same time as there are reviewers."""

    def __init__(self, answers: Mapping[str, tuple[float, str]], barrier: asyncio.Barrier) -> None:
        self._answers, self._barrier = answers, barrier

    async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
        task = request.messages[-1].text.rpartition("\n\n")[2]
        seconds, answer = self._answers[task]
        async with asyncio.timeout(60):
            await self._barrier.wait()
        await asyncio.sleep(seconds)
        yield says(answer)


def _plan_verifiers(request: ModelRequest) -> ModelReply:
    """One verifier for each finding of the reviewers."""
    told = [message.text for message in request.messages if message.role == "tool"]
    found = sorted(line for text in told for line in text.splitlines() if line[:1] == "F" and line[1:2].isdigit())
    return ModelReply(parts=tuple(helper_call("verifier", line, f"v{line[1]}") for line in found))


def _keep_the_sure(request: ModelRequest) -> ModelReply:
    """The findings with a confidence of at least 80."""
    told = [message.text for message in request.messages if message.role == "tool" and '"confidence"' in message.text]
    judged = [json.loads(text.splitlines()[0]) for text in told]
    return says("\n".join(sorted(one["finding"] for one in judged if one["confidence"] >= 80)) or "Nothing.")


async def test_a_code_review_by_helpers(tmp_path: Path) -> None:
    """The transcript is the expected one, and all reviewers work at once, as do all verifiers."""
    for name, (model, _, _) in REVIEWERS.items():
        define(tmp_path, name, model=f"test/{model}", tools="conversation_search")
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "review.md").write_text(
        "---\nallowed-tools: Task\n---\nReview $ARGUMENTS with all helpers."
    )
    define(tmp_path, "verifier", model="test/small", tools="conversation_search")
    findings = [line for _, _, text in REVIEWERS.values() for line in text.splitlines() if line != "nothing"]
    answers = {f"Review as {name}": (seconds, text) for name, (_, seconds, text) in REVIEWERS.items()}
    answers |= {
        line: (0.02 if line[1] == "2" else 0.01, json.dumps({"finding": line, "confidence": CONFIDENCE[line[:2]]}))
        for line in findings
    }
    review = ModelReply(parts=tuple(helper_call(name, f"Review as {name}", name) for name in REVIEWERS))
    leading = ScriptedModel(review, _plan_verifiers, _keep_the_sure)
    assert len(findings) == len(REVIEWERS)
    slow = Slow(answers, asyncio.Barrier(len(REVIEWERS)))
    models: dict[str, Model] = {"lead": leading, **dict.fromkeys(("small", "middle", "large"), slow)}
    async with lead(tmp_path, models) as (perdure, agent):
        reply = await agent.commands.run("review", "the change")
        runs = await ended_runs(perdure)

    transcript = {result.call_id: result.text.rpartition("\n\n")[0] for result in results(reply.messages)}
    assert leading.requests[0].messages[-1].text.endswith("\n\nReview the change with all helpers.")
    assert reply.text == "F2: off by one in b.py\nF4: the fix of last week is undone"
    assert transcript == {
        **{name: text for name, (_, _, text) in REVIEWERS.items()},
        **{f"v{line[1]}": answers[line][1] for line in findings},
    }
    assert runs[0].step_count == 3
