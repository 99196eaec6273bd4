"""Each feature is one folder: without it the program starts, answers, and shows its pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.core.features import find_features

FEATURES = Path(perdure.__file__).parent / "features"
NAMES = sorted(folder.name for folder in FEATURES.iterdir() if (folder / "feature.py").is_file())
PROGRAM = """
import asyncio
import importlib
import pkgutil

import httpx
import perdure
from perdure import AsyncPerdure
from perdure.server.app import build_document, create_app
from perdure.server.config import ServerConfig
from perdure.ui.pages.home import pages
from perdure.ui.routes import PAGES, build_routes

for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
    if not module.name.endswith("__main__") and ".sandbox.inside." not in module.name:
        importlib.import_module(module.name)


async def main():
    async with await AsyncPerdure.open("a.db") as library:
        agent = await library.create_agent("Ada")
        await agent.send("My name is Ann.")
        assert (await agent.send("What is my name?")).text
        app = create_app(library, ServerConfig(), pages=build_routes())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:8283") as client:
            for page in PAGES:
                for path in page.pages.paths:
                    if "{" not in path and path != "/why":  # which needs something to ask about
                        answer = await client.get(path)
                        assert answer.status_code == 200, (path, answer.text)
            answer = await client.get(f"/v1/agents/{agent.id}")
            assert answer.json()["name"] == "Ada"
    assert build_document(False)["paths"]


asyncio.run(main())
"""


@pytest.mark.parametrize("name", NAMES)
def test_the_program_works_without_a_feature(tmp_path: Path, name: str) -> None:
    """Every module is imported, an agent remembers, every page is shown, the API is described, commands are listed."""
    package = tmp_path / "perdure"
    shutil.copytree(FEATURES.parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    gone = {name}
    for feature in find_features():  # those that use it come behind it
        if not gone.isdisjoint(feature.uses):
            gone.add(feature.name)
    for folder in gone:
        shutil.rmtree(package / "features" / folder)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "PERDURE_PROBE_LOCAL": "0"}
    for arguments in (["-c", PROGRAM], ["-m", "perdure", "--help"], ["-m", "perdure", "doctor"]):
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr and (done.returncode == 0 or "doctor" in arguments), done.stderr
