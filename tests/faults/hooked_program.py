"""A program with a hook that kills it the first time: `hooked_program POINT TEXT`, in a folder of its own.

It sends the text to its agent, which doubles a number if it is `double`, and prints all rows of the log.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from perdure import ModelReply, ModelRequest, Perdure, Settings, Verdict, hook, tool
from perdure.testing import ScriptedModel, calls, says


def main(point: Any, text: str) -> None:
    folder = Path.cwd()

    @hook(point)
    def watcher(payload: Any) -> Verdict:
        with (folder / "told").open("a") as told:
            told.write(f"{payload.run_id}\n")
        if not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Verdict(context="be brief")

    @tool(idempotent=True)
    def double(number: int) -> int:
        """A number doubled."""
        with (folder / "done").open("a") as done:
            done.write("double ")
        return number * 2

    models = {"test/scripted": ScriptedModel(otherwise=answer)}
    settings = Settings(model="test/scripted", embedding="none")
    with Perdure("agents.db", models=models, tools=[double], hooks=[watcher], settings=settings) as perdure:
        found = perdure.agents()
        agent = found[0] if found else perdure.create_agent("a")
        agent.send(text)
        store = perdure._inner.app.store
        rows = perdure._portal.run(store.read(lambda tx: tx.messages.list(agent.id, kinds=None)))
        print(json.dumps([[row.run_id, row.role, row.kind, row.text] for row in rows]))


def answer(request: ModelRequest) -> ModelReply:
    said = [message for message in request.messages if message.kind == "message"]
    asked = max(index for index, message in enumerate(said) if message.role == "user")
    wants = said[asked].text == "double" and len(said) == asked + 1
    return calls("double", number=2) if wants else says("done")


if __name__ == "__main__":
    main(*sys.argv[1:])
