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

ROOT = Path(__file__).parents[2]
OF_THE_KERNEL = ("core", "context", "domain", "search", "storage", "engine", "library", "server", "cli", "toolbox")
"""Folders of tests. Each file that names a missing feature is left out, and so are tests that say they use it."""
FEATURES = Path(perdure.__file__).parent / "features"
NAMES = sorted(folder.name for folder in FEATURES.iterdir() if (folder / "feature.py").is_file())
PROGRAM = """
import asyncio
import importlib
import pkgutil

import httpx
import perdure
from perdure import AsyncPerdure, ModelNotFound
from perdure.core.features import feature_models
from perdure.server.serving.app import build_document, create_app
from perdure.server.config import ServerConfig
from perdure.testing import ScriptedModel, says
from perdure.ui.pages.home import pages
from perdure.ui.pages.routes import PAGES, build_routes

OUTSIDE = (".sandbox.inside.", ".adapters.")
for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
    # Adapters are programs, and need what they are about; nothing needs them.
    if not module.name.endswith("__main__") and not any(one in module.name for one in OUTSIDE):
        importlib.import_module(module.name)


async def main():
    model = ScriptedModel(says("Hello, Ann."), says("Ann."))
    async with await AsyncPerdure.open("a.db", models={"test/model": model}) as library:
        if feature_models():
            agent = await library.create_agent("Ada")
        else:
            try:
                await library.create_agent("Ada")
            except ModelNotFound as error:
                assert "OPENAI_API_KEY" in str(error), error
            agent = await library.create_agent("Ada", model="test/model")
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


@pytest.mark.skipif(os.environ.get("PERDURE_FAULTS") != "full", reason="minutes for each feature")
@pytest.mark.parametrize("name", NAMES)
def test_the_kernels_tests_pass_without_a_feature(tmp_path: Path, name: str) -> None:
    """In a copy of all files that lacks its folder."""
    for folder in ("src", "tests", "scripts", "benchmarks", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ROOT.iterdir():
        if file.is_file() and file.name != ".git":
            shutil.copy(file, tmp_path)
    shutil.rmtree(tmp_path / "src/perdure/features" / name)

    tests = [f"tests/{folder}" for folder in OF_THE_KERNEL]
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": "src", "PERDURE_FAULTS": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-5_000:]
