"""A sandbox whose code tells its environment: what tests of secrets run in place of a real one."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

from perdure.core.tools.sandbox import Isolation, SandboxJob, SandboxResult

SOURCE = '''
def leak(text: str) -> str:
    """Say what it sees.

    Args:
        text: anything.
    """
    return text
'''
"""The source of a tool to be run in it."""


class LeakingSandbox:
    """`Sandbox` that returns and prints the environment of each job, but for the names in `hidden`."""

    def __init__(self, hidden: Collection[str] = ()) -> None:
        self._hidden = hidden

    async def run(
        self,
        job: SandboxJob,
        *,
        progress: Callable[[str], None] | None = None,
        lines: Callable[[str], None] | None = None,
    ) -> SandboxResult:
        environment = {name: value for name, value in job.environment.items() if name not in self._hidden}
        text = json.dumps(environment)
        return SandboxResult(status="success", value=environment, stdout=text, stderr=text)

    async def isolation(self) -> Isolation:
        return Isolation(backend="none", measures=(), enough=True, summary="a stand-in")

    async def close(self) -> None: ...
