"""`run_skill_script`: a script of a skill runs in the sandbox, beside the skill's other files."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping
from typing import Any

from perdure.app import App
from perdure.core.errors import ToolError
from perdure.core.ports import CallContext
from perdure.core.specs import Tool, ToolOutcome
from perdure.core.tools.sandbox import SandboxJob
from perdure.features.plugins.policy import load_policy
from perdure.features.skills.catalog import find_skill, holder_of
from perdure.features.skills.files import read_file, read_files
from perdure.features.skills.units import count_use
from perdure.features.skills.values import SkillView
from perdure.storage.tx import Tx
from perdure.toolbox.builtin.index_output import render_result

RUNNER = """
def run(files, script, arguments):
    import base64, os, pathlib, runpy, sys
    os.makedirs("skill", exist_ok=True)
    os.chdir("skill")
    for name, data in files.items():
        path = pathlib.Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"the script ended with {end.code}") from None
"""
_PYTHON = re.compile(rb"#!\S*[/ ]python")
ARGUMENTS_MAX, ARGUMENT_CHARS = 50, 10_000


class SkillScripts:
    """`FeatureToolbox` of the tool."""

    def __init__(self, app: App) -> None:
        self._app = app

    def missing(self, tool: Tool) -> str | None:
        """Why it can't be run here; None: it can."""
        return None if self._app.shared.sandbox is not None else "there is no sandbox here, so no script is run"

    async def close(self) -> None:
        """Nothing is held open."""

    async def call(self, tool: Tool, arguments: Mapping[str, Any], context: CallContext) -> ToolOutcome:
        """Run a script, and return what it printed. Raises: ToolError, NotFound, SandboxUnavailable."""
        app, script = self._app, str(arguments["script"]).strip().removeprefix("./")
        argv = [str(argument) for argument in arguments.get("arguments") or ()]
        if len(argv) > ARGUMENTS_MAX or any(len(one) > ARGUMENT_CHARS for one in argv):
            raise ToolError(f"a script takes at most {ARGUMENTS_MAX} arguments of {ARGUMENT_CHARS:,} characters")
        if not load_policy(app.settings).allows_tool(tool.spec.name):
            raise ToolError("a policy forbids to run the scripts of skills")

        def find(tx: Tx) -> SkillView:
            """Return the skill of this name, and count its use by the run."""
            holder = holder_of(tx, tx.agents.get(context.agent_id))
            skill = find_skill(tx, holder, arguments["name"])
            if context.run_id:
                count_use(tx, holder.id, skill.name, tx.runs.get(context.run_id), at=now)
            return skill

        now = app.ports.clock.now()
        skill = await app.store.write(find)
        code = await asyncio.to_thread(read_file, skill, script)
        if not script.endswith(".py") and not _PYTHON.match(code):
            raise ToolError(
                f"{script!r:.80} was not run: the sandbox has Python, and neither a shell nor other programs. Read it"
                " with read_skill, and do its steps with your own tools, or in Python"
            )
        files = {**await asyncio.to_thread(read_files, skill), script: code}
        shape = {name: base64.b64encode(data).decode() for name, data in files.items()}
        job = SandboxJob(
            source=RUNNER,
            function="run",
            arguments={"files": shape, "script": script, "arguments": argv},
            owner=context.agent_id,
        )
        assert app.shared.sandbox is not None
        result = await app.shared.sandbox.run(job)
        return ToolOutcome(text=render_result(result), status="success" if result.status == "success" else "error")
