"""Thirteen secrets, of every kind that a server holds: none is in the database, a log, a trace, an export or a backup.

The sandbox, a provider and the network around it do their worst: the code of a tool tells its whole environment, and
the provider repeats the key that it was sent in its error.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from perdure import AsyncPerdure, RunFailed, Settings
from perdure.app import start
from perdure.core.incoming.addresses import is_postgres
from perdure.core.incoming.principals import LOCAL
from perdure.core.secrets import SecretMask
from perdure.features.access.service import Access
from perdure.library.parts.providers import ProviderFields
from perdure.server.config import ServerConfig
from perdure.server.log import log_to
from perdure.server.serving.app import create_app
from perdure.testing import ScriptedModel, calls, says
from tests.support.leaking_sandbox import SOURCE, LeakingSandbox
from tests.support.postgres_server import address_of_a_new_schema
from tests.support.servers import BASE, MODEL

CANARIES = {
    "AGENT": "canary-agent-1b8f/+ 6",
    "ORGANISATION": "canary-organisation-92ad?&",
    "TOOL": 'canary-tool-77c0"\\ e',
    "VARIABLE_OF_TOOLS": "canary-sandbox-5a1e",
    "MCP_HEADER": "canary-header-4d1e",
    "MCP_TOKEN": "canary-token-9c02",
    "MCP_VARIABLE": "canary-variable-a60b",
    "PROVIDER": "sk-canary-provider-77aa12",
    "ENCRYPTION": "canary-key-of-secrets-31f9",
    "SERVER": "canary-api-key-58e2",
    "WEB_SEARCH": "canary-web-search-key-0f4b",
    "MODEL": "sk-canary-model-key-c7d3",
}
"""Beside these there is an API key of the store, whose text is made anew each time."""


@contextlib.asynccontextmanager
async def tattling_provider() -> AsyncIterator[str]:
    """The address of a provider that refuses each request, and quotes its key."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            key = next((line for line in head.split("\r\n") if line.lower().startswith("authorization:")), "")
            body = json.dumps({"error": {"message": f"Incorrect API key provided: {key}", "code": "invalid_api_key"}})
            start = f"HTTP/1.1 401 No\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{start}Connection: close\r\n\r\n{body}".encode())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


@dataclass
class Used:
    """A server that has used all its secrets: what it wrote, and where."""

    address: str
    folder: Path
    log: str
    spans: str
    exports: Mapping[str, str]
    canaries: Mapping[str, str]


SPANS = InMemorySpanExporter()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    """What the SDK receives. A process has one SDK, so it stays."""
    provider = trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    provider.add_span_processor(SimpleSpanProcessor(SPANS))
    SPANS.clear()
    return SPANS


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is still empty."""
    (tmp_path / "store").mkdir()
    return str(tmp_path / "store" / "perdure.db") if request.param == "sqlite" else address_of_a_new_schema()


@pytest.fixture
async def used(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter) -> Used:
    folder = tmp_path / "store"
    environment = {"EXA_API_KEY": CANARIES["WEB_SEARCH"], "OPENAI_API_KEY": CANARIES["MODEL"]}
    environment |= {"PERDURE_SECRET_KEY": CANARIES["ENCRYPTION"], "PERDURE_API_KEY": CANARIES["SERVER"]}
    log = io.StringIO()
    async with tattling_provider() as provider:
        for name, value in environment.items() | {("OPENAI_BASE_URL", provider)}:
            monkeypatch.setenv(name, value)
        settings = Settings(
            model=MODEL, store=address, secret_key=CANARIES["ENCRYPTION"], web_search="exa", trace_content="on"
        )
        model = ScriptedModel(calls("leak", text="now"), otherwise=says("done"))
        app = await start(settings, models={MODEL: model}, sandbox=LeakingSandbox())
        with log_to(log, form="json", level="debug", environment=environment):
            async with AsyncPerdure(app) as library:
                key = await use_everything(library, provider)
                exports = await exports_of(library, key)
                await library.backup(folder / "backup.db")
                if not is_postgres(address):  # with its write-ahead log, as it is while the server runs
                    for file in folder.glob("perdure.db*"):
                        (tmp_path / f"running-{file.name}").write_bytes(file.read_bytes())
    told = "\n".join(span.to_json() for span in spans.get_finished_spans())
    return Used(address, tmp_path, log.getvalue(), told, exports, {**CANARIES, "STORE_KEY": key})


async def use_everything(library: AsyncPerdure, provider: str) -> str:
    """Store each secret and use it; the text of an API key of the store."""
    ports = library.app.ports
    agent = await library.create_agent("ada")
    await library.secrets.set("SHARED", CANARIES["ORGANISATION"])
    await agent.secrets.set("OWN", CANARIES["AGENT"])
    await library.tools.create(SOURCE, environment={"LITERAL": CANARIES["TOOL"], "KEY": "secret:SHARED"})
    await agent.tools.attach("leak")
    config = await library.sandbox.put({})
    await library.sandbox.add_variable(config.id, "VARIABLE", CANARIES["VARIABLE_OF_TOOLS"], None)
    headers = {"X-Key": CANARIES["MCP_HEADER"]}
    await library.mcp.add(
        "web", check=False, url="http://127.0.0.1:9/", private=True, token=CANARIES["MCP_TOKEN"], headers=headers
    )
    await library.mcp.add("files", check=False, command="/nonexistent", environment={"TOKEN": CANARIES["MCP_VARIABLE"]})
    for server in ("web", "files"):
        with contextlib.suppress(Exception):
            await library.mcp.refresh(server)
    fields = ProviderFields(name="mine", provider_type="openai", api_key=CANARIES["PROVIDER"], base_url=provider)
    await library.providers.create(fields, private=True)
    access = Access(library.app.shared.store, ports.clock, ports.ids, LOCAL)
    _, key = await access.create_key("ann", "admin")
    assert any("secret SHARED" in message.text for message in (await agent.send("go")).messages)
    for handle in ("mine/gpt-4o", "openai/gpt-4o"):
        other = await library.create_agent(handle.partition("/")[0], model=handle)
        with pytest.raises(RunFailed, match="Incorrect API key"):
            await other.send("hello")
    logging.getLogger("perdure.library").warning("the end of %s", "everything")
    return key


async def exports_of(library: AsyncPerdure, key: str) -> dict[str, str]:
    """What a client of each kind of key can take away: every list, run and step, metrics and exports."""
    found: dict[str, str] = {}
    app = create_app(library, ServerConfig(api_key=CANARIES["SERVER"]))
    for name, sent in (("server", CANARIES["SERVER"]), ("store", key)):
        transport, headers = httpx.ASGITransport(app), {"authorization": f"Bearer {sent}"}
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as http:
            runs = (await http.get("/v1/runs/")).json()
            paths = [
                f"/v1/runs/{run['id']}/{kind}" for run in runs for kind in ("export", "steps", "messages", "trace")
            ]
            steps = [one for run in runs for one in (await http.get(f"/v1/runs/{run['id']}/steps")).json()]
            paths += [f"/v1/steps/{step['id']}/trace" for step in steps]
            paths += ["/v1/agents/", "/v1/tools/", "/v1/mcp-servers/", "/v1/providers/", "/v1/keys/", "/v1/audit"]
            paths += ["/metrics", "/v1/sandbox-config/"]
            for path in paths:
                answer = await http.get(path)
                assert answer.status_code < 500, (path, answer.text)
                found[f"{name} {path}"] = answer.text
    await app.state.gate.close()
    return found


def texts_of(used: Used) -> dict[str, str]:
    """Everything that was written, by where: files as they are, rows of PostgreSQL as texts."""
    found = {"the log": used.log, "the traces": used.spans, **used.exports}
    for file in used.folder.rglob("*"):
        if file.is_file() and file.name != "secret.key":
            found[str(file.relative_to(used.folder))] = file.read_bytes().decode("latin-1")
    if is_postgres(used.address):
        with psycopg.connect(used.address) as connection:
            tables = connection.execute(
                "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
            ).fetchall()
            for (table,) in tables:
                rows = connection.execute(f"SELECT t::text FROM {table} t".encode()).fetchall()
                found[f"table {table}"] = "\n".join(str(row[0]) for row in rows)
    return found


@pytest.mark.slow
async def test_no_secret_is_written_anywhere(used: Used) -> None:
    """As it is, escaped, percent-encoded, in base64 or hexadecimal digits."""
    mask = SecretMask({value: name for name, value in used.canaries.items()})
    texts = texts_of(used)
    found = [f"{place}: {told[:300]}" for place, text in texts.items() if (told := shown(mask, text))]

    size = sum(len(text) for text in texts.values())
    print(f"{len(used.canaries)} secrets, {len(texts)} places, {size:,} characters, {len(found)} found")
    assert found == []
    assert len(used.canaries) >= 12
    assert (
        "the end of everything" in used.log and '"gen_ai.input.messages"' in used.spans
    )  # there was something to find
    assert any("backup" in place for place in texts) and any("Incorrect API key" in text for text in texts.values())


def shown(mask: SecretMask, text: str) -> str:
    """Where a text holds a secret, with what stands around it; empty: nowhere."""
    told = mask.text(text)
    return "" if told == text else next(told[max(0, at - 100) : at + 100] for at in [told.find("[secret ")])
