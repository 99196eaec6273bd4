"""`PerdureSession` in the session tests of OpenAI's Agents SDK itself.

They are in its source distribution: unpack that, and set PERDURE_AGENTS_SDK to the folder. Left out is what is about
connections and rows of SQLite.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.packages import FOLDER

PLUGIN = """
import asyncio, inspect
import agents, agents.memory, pytest
from perdure.adapters.openai_agents import PerdureSession
from perdure.testing import InlineStore

class SQLiteSession(PerdureSession):
    def __init__(self, session_id, path=":memory:", **options):
        own = {"store": InlineStore()} if str(path) == ":memory:" else {"address": path}
        super().__init__(session_id, **own, **options)

agents.SQLiteSession = agents.memory.SQLiteSession = SQLiteSession

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""
LEFT_OUT = (
    "worker_thread or connection or corrupt or closed or lock or rollback or rolls_back or post_commit or retired"
)


def test_the_sdks_own_tests_of_sessions_pass(tmp_path: Path) -> None:
    if not (source := os.environ.get("PERDURE_AGENTS_SDK")) or not FOLDER.is_dir():
        pytest.skip("PERDURE_AGENTS_SDK is not set to the unpacked source of openai-agents")
    (tmp_path / "with_perdure.py").write_text(PLUGIN)
    src = Path(__file__).resolve().parents[2] / "src"
    path = os.pathsep.join(map(str, (tmp_path, src, source, FOLDER)))
    files = ["tests/memory/test_session.py", "tests/memory/test_session_limit.py"]
    options = ["-q", "-W", "ignore", "-p", "with_perdure", "-p", "no:schemathesis", "-p", "no:langsmith_plugin"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", f"not ({LEFT_OUT})", *files],
        cwd=source,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stdout[-3_000:]
