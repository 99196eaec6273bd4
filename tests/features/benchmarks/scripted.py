"""A model that knows the answers of the samples, and one that judges by words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from perdure.core.errors import ModelError
from perdure.core.models import Model, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.features.benchmarks.sets import DATA_SETS
from perdure.features.benchmarks.sets.values import ABSTENTION, CaseQuestion, Setup
from perdure.features.benchmarks.setups import make_setup
from perdure.testing import ScriptedModel, calls, says

MODEL, JUDGE = "test/model", "test/judge"
USAGE = Usage(input_tokens=100, output_tokens=5)


def setup_of(name: str, out: Path, **more: Any) -> Setup:
    """A run on the shipped sample, by default with the scripted model and one seed."""
    given: dict[str, Any] = {"data": None if name == "niah" else "sample", "model": MODEL, "seeds": 1, **more}
    return make_setup(name, out=out, **given)


def questions_of(setup: Setup) -> Sequence[CaseQuestion]:
    """The questions of all seeds."""
    seeds = range(1, setup.seeds + 1)
    return [one for seed in seeds for case in DATA_SETS[setup.name].load(setup, seed) for one in case.questions]


def last_text(request: ModelRequest) -> str:
    """What the newest message of a person says."""
    return next(one.text for one in reversed(request.messages) if one.role == "user" and one.kind == "message")


def knowing(
    setup: Setup, told: Callable[[str], None] = lambda text: None, extracts: ModelReply | ModelError | None = None
) -> ScriptedModel:
    """A model that answers each question as the data does, and of a needle says what it sees; with tools it looks
    before it answers. `told` takes each question at the moment at which it is answered; `extracts`: the facts of each
    batch."""
    questions = questions_of(setup)
    golds = {one.text: "It was not said." if one.kind == ABSTENTION else one.answer for one in questions}
    hidden = {one.answer for one in questions if one.kind == "needle"}

    def answer(request: ModelRequest) -> ModelReply:
        """Search once where there is a tool, then say the answer."""
        asked = last_text(request)
        tools = {str(tool.get("name")) for tool in request.tools}
        if request.messages[-1].role != "tool":
            if "conversation_search" in tools:
                return calls("conversation_search", query=asked[:100])
            if "grep_files" in tools:
                return calls("grep_files", pattern=" (is|her|called) .*[a-z]+\\.")
        told(asked)
        if hidden:
            results = (result.text for one in request.messages for result in one.results)
            seen = " ".join([request.tail, *(one.text for one in request.messages), *results])
            return says(next((word for word in hidden if f"{word}." in seen), "It was not said."), usage=USAGE)
        return says(next((gold for text, gold in golds.items() if text in asked), "?"), usage=USAGE)

    return ScriptedModel(otherwise=answer, extracts=extracts)


def judging() -> ScriptedModel:
    """A judge that takes an answer for right if the right one stands in it."""

    def judge(request: ModelRequest) -> ModelReply:
        """Compare the two lines of the claim."""
        gold, answer = (line.partition(": ")[2] for line in last_text(request).split("\n")[1:3])
        is_right = "not said" in answer if "can't be answered" in request.system else gold in answer
        return says("CORRECT" if is_right else "WRONG", usage=USAGE)

    return ScriptedModel(otherwise=judge)


def models_of(setup: Setup) -> dict[str, Model]:
    """The scripted models by their handles."""
    return {MODEL: knowing(setup), JUDGE: judging()}
