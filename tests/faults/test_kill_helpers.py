"""`kill -9` of a program whose agent has helpers at work: each of them does each task once, and each result comes back
once.

Short in `make test-all`, a hundred kills with `PERDURE_FAULTS=full`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from perdure.core.runs import RunFilter
from tests.faults.helping_program import HELPERS, TASK, open_store
from tests.faults.killing import lines_until_killed
from tests.support.stores import new_address

KILLS = 100 if os.environ.get("PERDURE_FAULTS") == "full" else 2


@pytest.mark.faults
def test_each_helper_does_each_task_once(tmp_path: Path) -> None:
    """Whatever the moment of the kill, and though the next process runs the call again."""
    store, chance, task = new_address(tmp_path), random.Random(0), 0
    with open_store(store) as perdure:
        perdure.create_agent("lead", model="test/lead").tools.attach("run_helper")
    for _ in range(KILLS):
        task += len(lines_until_killed("helping_program.py", store, task, chance=chance, delay_s=1.0))

    with open_store(store) as perdure:
        lead = perdure.agent("lead")
        reply = lead.send(TASK.format(task), idempotency_key=str(task))
        messages = lead.messages(limit=10_000, conversation=lead.conversations()[0].id)  # forks have copies
        runs = perdure._portal.run(perdure._inner.app.store.read(lambda tx: tx.runs.page(RunFilter(), limit=100_000)))

    tasks = [TASK.format(number) for number in range(task + 1)]
    results = Counter(
        result.text.partition("\n")[0]
        for message in messages
        for result in message.results
        if result.name == "run_helper"
    )
    begun = Counter(run.options.helper for run in runs if run.options.helper)
    assert reply.text == " | ".join(sorted(f"Did {tasks[-1]} as {one}." for one in HELPERS))
    assert results == Counter(f"Did {one} as {helper}." for one in tasks for helper in HELPERS)
    assert begun == dict.fromkeys(HELPERS, len(tasks))
