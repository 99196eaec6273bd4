"""OpenAI's JavaScript client and the Vercel AI SDK against `/openai/v1`; the client's types validate each answer."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from perdure import AsyncPerdure, Settings
from perdure.core.models import ModelReply, ModelRequest
from perdure.server.config import ServerConfig
from perdure.testing import InlineStore, ScriptedModel, calls, says
from tests.server.routed import MODEL
from tests.support.servers import listening

PROGRAM = Path(__file__).parents[2] / "wire" / "typescript" / "openai.mjs"
ANSWER_S = 120.0

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (PROGRAM.parent / "node_modules" / "openai").is_dir(),
    reason="`make setup` installs the JavaScript clients where there is a Node",
)


def obey(request: ModelRequest) -> ModelReply:
    """Say what the newest user asks for, call what it names, or repeat what a tool returned."""
    last = [message for message in request.messages if message.kind == "message"][-1]
    if last.results:
        return says(last.results[-1].text)
    word, _, rest = last.text.split("\n")[0].partition(" ")
    return calls("look", at="sky") if word == "call" else says(rest)


@pytest.mark.slow
async def test_javascript_clients() -> None:
    """Chats, streams, responses, tools and pictures; two requests of one chat are one conversation."""
    async with await AsyncPerdure.open(
        store=InlineStore(), models={MODEL: ScriptedModel(*[obey] * 60)}, settings=Settings(model=MODEL)
    ) as library:
        agent = await library.create_agent("ann", tools=())
        async with listening(library, ServerConfig(port=0)) as address:
            pipe = asyncio.subprocess.PIPE
            process = await asyncio.create_subprocess_exec(
                "node", str(PROGRAM), address, stdout=pipe, stderr=pipe, limit=1 << 22
            )
            out, errors = await asyncio.wait_for(process.communicate(), ANSWER_S)
        outcomes: dict[str, Any] = json.loads(out or b"null") or pytest.fail(errors.decode()[-2_000:])
        said = [[row.text for row in await agent.messages(conversation=one.id)] for one in await agent.conversations()]

    assert {name: one["problems"] for name, one in outcomes.items() if one["problems"]} == {}
    found = {name: one["found"] for name, one in outcomes.items()}
    assert {"ann", f"memory/{MODEL}"} <= {*found.pop("models")}
    assert found == {
        "chat": "chat",
        "stream": "a b c",
        "tools": "the sky is blue",
        "images": "images",
        "responses": ["first", "second"],
        "responseStream": "x y z",
        "proxy": "proxied",
        **{f"sdkText{kind}": f"sdk {kind}" for kind in ("Chat", "Responses")},
        **{f"sdkStream{kind}": f"s d k {kind}" for kind in ("Chat", "Responses")},
        **{f"sdkTools{kind}": "the sky is blue" for kind in ("Chat", "Responses")},
        **{f"sdkHistory{kind}": [f"one {kind}", f"two {kind}"] for kind in ("Chat", "Responses")},
        **{f"sdkImage{kind}": f"image {kind}" for kind in ("Chat", "Responses")},
    }
    for kind in ("Chat", "Responses"):
        assert [f"say one {kind}", f"one {kind}", f"say two {kind}", f"two {kind}"] in said
