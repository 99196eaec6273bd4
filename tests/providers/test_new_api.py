"""A provider with an API of its own is a folder of `providers` and an entry of `providers.toml`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

ENTRY = """
[acme]
api_name = "acme"
default_url = "https://api.acme.test"
default_model = "acme-large"
wire_type = "acme_ai"
"""
API = '''
"""The API of Acme."""

from perdure.core.messages import Text
from perdure.core.models import ModelReply, Usage


class AcmeModel:
    def __init__(self, source):
        self.source = source

    async def respond(self, request):
        yield ModelReply(parts=(Text(f"{self.source.name} says hello"),), usage=Usage(), stop_reason="end_turn")

    async def payload(self, request):
        return {"prompt": "text"}


class AcmeApi:
    def complete_path(self, provider, path, query):
        return path, query

    def listing_request(self, endpoint):
        return f"{endpoint.base_url}/list", {"X-Key": endpoint.api_key}, {}

    def build(self, source):
        return AcmeModel(source)


API = AcmeApi()
'''
CATALOG = """
[[model]]
match = ["acme/acme-*"]
window = 77_000
price = { input = 3.0, output = 9.0 }
"""
PROGRAM = """
import asyncio, json
from perdure import AsyncPerdure, Settings
from perdure.app.telemetry import prices_of
from perdure.server.wire.models import provider_type_of
from dataclasses import replace

async def main():
    settings = replace(Settings(), model="acme/acme-large")
    async with await AsyncPerdure.open("a.db", settings=settings) as library:
        agent = await library.create_agent("Ada")
        reply = await agent.send("Hello.")
        models = library.app.models
        print(json.dumps([
            reply.text, models.window_tokens("acme/acme-large"), prices_of("acme/acme-large", models).output,
            provider_type_of("acme/acme-large", {"acme_ai"}), "acme/acme-large" in models.handles(),
        ]))

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_new_api_is_a_folder_and_an_entry(tmp_path: Path) -> None:
    """An agent answers by it, and its window, price and type in Letta's API are known."""
    package = tmp_path / "perdure"
    shutil.copytree(Path(perdure.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "providers" / "providers.toml").open("a", encoding="utf-8") as file:
        file.write(ENTRY)
    folder = package / "providers" / "acme"
    folder.mkdir()
    for name, text in (("__init__.py", ""), ("api.py", API), ("catalog.toml", CATALOG)):
        (folder / name).write_text(text, encoding="utf-8")

    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ACME_API_KEY": "key-123456"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["acme-large says hello", 77_000, 9.0, "acme_ai", True]
