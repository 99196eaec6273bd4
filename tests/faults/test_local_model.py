"""A real model in a process that is killed: its message is answered once, and remembered over a restart.

It needs xllamacpp, and a model's file in PERDURE_TEST_MODEL.
"""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest

from perdure import AsyncPerdure
from perdure.core.events import Delta, StepAbandoned
from perdure.features.local.pages import served_by
from perdure.settings import Settings

FILE = os.environ.get("PERDURE_TEST_MODEL", "")

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not FILE or find_spec("xllamacpp") is None, reason="needs xllamacpp and PERDURE_TEST_MODEL"),
]


async def test_a_process_killed_in_mid_answer_is_started_again_and_answers_once(tmp_path: Path) -> None:
    """What the model said before is void; the next process of Perdure reads the answer in the log."""
    settings = Settings(home=str(tmp_path), local_model=FILE, embedding="none")
    async with await AsyncPerdure.open(settings=settings) as perdure:
        agent = await perdure.create_agent("Ada", tools=[], settings={"max_output_tokens": 40, "temperature": 0.0})
        (name,) = served_by(perdure).names()
        killed, void, pieces = 0, 0, 0
        async for event in agent.stream("My dog is called Rex. Count from one to twenty in words."):
            pieces += isinstance(event, Delta)
            if not killed and pieces == 3:
                killed = served_by(perdure).processes[name].process.pid
                os.kill(killed, signal.SIGKILL)
            void += isinstance(getattr(event, "event", None), StepAbandoned)
        assert served_by(perdure).processes[name].process.pid != killed
        messages = await agent.messages()
    async with await AsyncPerdure.open(settings=settings) as perdure:
        again = await (await perdure.agent("Ada")).messages()

    assert void == 1
    assert [message.role for message in messages] == ["user", "assistant"]
    assert again == messages
