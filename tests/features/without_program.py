"""What has to work without a feature: the package is that of PYTHONPATH, in which the feature's folder is missing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import runpy
import sys
from pathlib import Path

gc.disable()  # what is imported stays, and looking for what does not takes a tenth of the time
for name in [name for name in sys.modules if name.partition(".")[0] == "perdure"]:
    del sys.modules[name]  # a warm program has the whole one; what others wrote stays imported, which saves seconds

import httpx  # noqa: E402

import perdure  # noqa: E402
from perdure import AsyncPerdure, ModelNotFound  # noqa: E402
from perdure.core.features import feature_models  # noqa: E402
from perdure.server.config import ServerConfig  # noqa: E402
from perdure.server.serving.app import build_document, create_app  # noqa: E402
from perdure.testing import ScriptedModel, says  # noqa: E402
from perdure.ui.pages.routes import build_routes, page_modules  # noqa: E402

OUTSIDE = (".sandbox.inside.", ".adapters.")
PACKAGE = Path(*perdure.__path__)
for file in sorted(PACKAGE.rglob("*.py")):
    module = ".".join(("perdure", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    # Adapters are programs, and need what they are about; nothing needs them.
    if not module.endswith("__main__") and not any(one in module + "." for one in OUTSIDE):
        importlib.import_module(module)


async def main() -> None:
    """An agent remembers, every page is shown."""
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
            for page in page_modules():
                for path in page.pages.paths:
                    if "{" not in path and path != "/why":  # which needs something to ask about
                        answer = await client.get(path)
                        assert answer.status_code == 200, (path, answer.text)
            answer = await client.get(f"/v1/agents/{agent.id}")
            assert answer.json()["name"] == "Ada"
    assert build_document(False)["paths"]


assert perdure.__file__.startswith(sys.argv[1])
asyncio.run(main())
for command in ("--help", "doctor"):
    sys.argv[1:] = [command]
    with contextlib.suppress(SystemExit):
        runpy.run_module("perdure", run_name="__main__")
