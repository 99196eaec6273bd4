"""Schemathesis over every operation of the OpenAPI document, in this process: what it finds, as lines of text.

The application is opened with one thing of each kind, whose ids requests name most of the time, so that routes are
reached and not only their 404s. A model answers by script. There is no MCP server: what can't be reached is 502.
"""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
from starlette.types import Receive, Scope, Send

from perdure import AsyncPerdure
from perdure.server.config import ServerConfig
from perdure.server.serving.app import create_app
from perdure.settings import Settings
from perdure.testing import InlineStore, ScriptedModel

if TYPE_CHECKING:
    from schemathesis.engine import events

MODEL = "test/scripted"
HOST = "testserver"
"""Where schemathesis's in-process client sends its requests."""

SOURCE = (
    'def echo(text: str) -> str:\n    """Give a text back.\n\n    Args:\n        text: any.\n    """\n    return text\n'
)

NAMED = 0.7
"""How often a generated request names something that is there."""

RULES: Mapping[str, str] = {
    "version: .* is not a version of snapshots|hash: the snapshot": "a snapshot as one object says what it is",
    r"give (the number of a snapshot|a snapshot's number or a step)": "either a number or a step",
    r"the files: there is nothing|\S*:\d+: ": "files of agents are YAML with agents in it",
    "Failed to derive json schema": "a source has to be Python with a function in it",
    "source_type is": "or typescript",
    "the file is no": "an agent file, which is JSON",
    "use_legacy_format": "one of the layouts of agent files is not written here",
    "secrets must be a JSON object": "of names and values",
    "(json_schema|schema|tool schema)": "a JSON schema that a tool can have",
    "requirement|a tool has at most|secret|environment": "names of packages and variables",
    r"(memory_mb|timeout_s) is .* a call (gets|takes) at most": "a setting of this server",
    "search_mode 'vector' needs|embedding has": "what this server has",
    "agent_id: the conversation 'default' needs|body.conversation_id: 'default' needs": "a word that needs an agent",
    "query.conversation_id: 'default' needs": "the same in a query",
    "body.messages: no user says anything": "the last word is a user's",
    "field '|'.*' is not a field of a note|title is|title has|the note has": "the fields that a kind of note has",
    "Streaming options set without|streaming: messages/async": "fields that need another one, or another route",
    "there is nothing to recall from|nothing says which passages": "at least one of several",
    "body.requires_approval: Field required": "in the body or, as it was, in the query",
    r"body.messages.\d+: (give approvals|the answer to call)": "an answer depends on its call's type",
    r"body.\w+.\d+[\w.]*.source.data: must be the bytes": "base64, which the SDK's type calls a text",
    "the message is empty": "white space alone is no message",
    "callback_url": "an address, where the answer is not the report; a batch has one for all of its requests",
    "a batch does not stream": "the same",
    r"\S+ could not be (fetched|resolved)|.* can't be reached|.* was not asked for: it": "public hosts that are there",
    "the rule is empty": "words, an entity, or a relation",
    "agent_id: name an agent or": "an agent or a graph, one of both",
    "the fact (ends|has one entity)": "a fact ends after it begins, and is about two entities",
    "fact_types|facts (is|has)|facts\\.": "types with signatures; settings within limits",
    "network (is|lists|has)": "hosts, at most 100",
    "name: a provider keeps its name": "some names are ours",
    "body.limit is|body.value: block": "what the block holds has to fit",
    r"conv-\S+ is the agent's first conversation": "that one stays",
    r"entity_types\.": "a JSON schema that an entity can have",
    "tool name .* can't be used": "letters, digits, _ and -",
    "bypass_session_patterns": "texts of 1 to 500 characters, at most 100",
    "several memories hold|.* is not an id of": "what `why` is asked about is there, once",
    "Cannot process approval|No active runs found|Run .* was not created in background": "what the store holds",
    "a client tool": "a tool has a name, a description and a JSON schema",
    "an? MCP server|a stdio server|a server of the transport|the url of an MCP": "each type has fields of its own",
    "(header|variable) name|the value of (header|variable)|the arguments of an MCP|MCP server": "what those may hold",
    "(folder|file) name": "printable characters only",
    r"message \d+: ": "history with texts, times and ids within limits",
    "the context window is": "0 of the older llm_config is none, but not 1",
    "base_url: a provider of the type": "only some have an address that is known",
    "no message of .* is in view that could leave": "a conversation that is too short",
    "message-.* (has no (text|reasoning|tool result)|is the system message)": "what the message has",
    "message_id: .* is not in view": "a message of that conversation",
    "auto_(recall|capture)": "true, false, or settings of its own",
    "time zone": "names of the IANA",
    r"\d{4}-\S+ is (in the past|a century away)|scheduled_at is|an interval of": "a time that is still to come",
    "cron expression|the schedule would never|quiet hours|(every_s|starts_at) is": "times of day, and fields of cron",
    "base_url|api_key has|provider name": "an address and a key that can be sent; some types need an address",
    "agent_ids names|manager_agent_id|(termination_token|frequency) is of|manager_config.manager_type": "who speaks",
    "(max_turns|max_tokens|max_cost_usd|frequency|m(in|ax)_message_buffer_length) is": "a limit of its kind of group",
    "agent-.* is the (manager and in|companion of)|group-.* is a .*sleeptime group": "a manager or companion is nobody",
    "messages: a group takes no answers to calls": "answers go to the agent that waits",
    "a group takes messages of users only": "the role is a user's",
    "the key would expire": "a moment that is still to come",
    "there is no context engine": "names of engines that are there",
    "the name of (a key|a user|an organisation) is": "printable characters only",
    "the default organisation can't be deleted": "that one stays",
    "project names another folder": "folders that the operator allows",
    "source is '": "programs that an import knows, in a form",
    "refused by the rule": "what may be kept, and under which name",
    "tool rule|tool_rules": "rules name tools, and must not contradict each other",
}
"""The beginning of the detail of an answer that refuses what the document allows -> the rule, which no JSON schema can
say, or which what is stored decides."""

_LAX = r'[01](\.0)?|true|false|"[^"]*"'
EXCUSED: Sequence[tuple[str, str, str]] = [
    # (check, what the failure says with its answer and its request, why it is right)
    ("negative_data_rejection", '"event.*connection_attempt', "connecting tells of errors as it goes, in its stream"),
    # Pydantic reads 0 and 1 as booleans and back, and texts as numbers; so did Letta's server, whose clients these are.
    ("negative_data_rejection", rf'in body - (?:\w+ -> )*(\w+): Incorrect type.*"\1": ({_LAX})[,}}]', "0 is false"),
    (
        "negative_data_rejection",
        r"violates `type` at /properties/\w+ \(was (boolean|integer|number), became (boolean|integer|number|string)\)",
        "true is 1",
    ),
    (
        "negative_data_rejection",
        "(?i)^200: .*idempotency-key: .*/v1/messages/batches",
        "a retry under a key, with equal messages, is what was accepted before, whatever its options",
    ),
    ("negative_data_rejection", "violates `type` at /properties/file", "in a form every file is bytes"),
    ("unsupported_method", "415.*send JSON with", "a body that is not JSON is refused wherever it goes"),
]


@dataclass(slots=True)
class Found:
    """What a run sent and saw: requests by status, and a line for each failure that is not excused."""

    statuses: Counter[int] = field(default_factory=Counter)
    reached: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        return self.statuses.total()

    @property
    def broken(self) -> Counter[int]:
        """The answers from 500 on, but 501, which says that the request is Letta's and not supported here."""
        return Counter({status: count for status, count in self.statuses.items() if status >= 500 and status != 501})


def probe(phase: str, *, examples: int = 1, key: str | None = None, address: str | None = None) -> Found:
    """Run one phase of schemathesis: `coverage` (each limit of each field) or `fuzzing` (that many random requests an
    operation), with all of its checks. `address` is of an empty store; None: one in memory.

    The checks that find nothing here, because nothing in the document asks for them: use_after_free,
    ensure_resource_availability and object_level_authorization need links between operations, which only the stateful
    phase follows, and two identities, of which there is one.
    """
    # Not at the top: only the process that runs this takes the time to load it.
    import schemathesis
    from schemathesis.config import SchemathesisConfig
    from schemathesis.engine import Status, events, from_schema
    from schemathesis.python.asgi import shutdown_lifespans

    application = _Application(key, address)
    authorization = {} if key is None else {"authorization": f"Bearer {key}"}
    # The first loading opens the application, and so makes the things to name.
    schemathesis.openapi.from_asgi("/openapi.json", application, headers=authorization)
    shape = _config(phase, examples, application.known)
    if key is not None:
        shape["auth"] = {"openapi": {"bearer": {"bearer": key}}}
    else:  # from the first key on, a request without one gets no further than 401
        shape["operations"] = [{"include-path": "/v1/keys/", "include-method": "POST", "enabled": False}]
    config = SchemathesisConfig.from_dict(shape)
    schema = schemathesis.openapi.from_asgi("/openapi.json", application, config=config, headers=authorization)
    found = application.found
    try:
        for event in from_schema(schema).execute():
            if isinstance(event, events.NonFatalError | events.FatalError):
                found.failures.append(f"schemathesis: {event}")
            elif isinstance(event, events.ScenarioFinished) and event.status is Status.FAILURE:
                _add_failures(event, found)
    finally:
        shutdown_lifespans()
    return found


class _Application:
    """The application over a store, opened and closed by the lifespan of the client's event loop."""

    def __init__(self, key: str | None, address: str | None) -> None:
        self._address = address
        self.found, self.known = Found(), dict[str, list[str]]()
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._config = ServerConfig(allowed_hosts=(HOST,), api_key=key)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return

        async def counted(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.found.statuses[message["status"]] += 1
                if message["status"] < 400:
                    self.found.reached.add(f"{scope['method']} {scope['path']}")
            await send(message)

        await self._app(scope, receive, counted)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        settings = Settings(model=MODEL, secret_key=secrets.token_hex(16))
        models, store = {MODEL: ScriptedModel()}, InlineStore() if self._address is None else None
        library = await AsyncPerdure.open(self._address, store=store, models=models, settings=settings)
        async with library:
            self._app = create_app(library, self._config)
            transport, base_url = httpx.ASGITransport(self._app), f"http://{HOST}"
            async with httpx.AsyncClient(transport=transport, base_url=base_url, headers=self._headers) as client:
                self.known = await create_things(client)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})


async def create_things(client: httpx.AsyncClient) -> dict[str, list[str]]:
    """One thing of each kind: the name of the parameter that names it -> its id, or name."""

    async def create(path: str, body: Any = None, **options: Any) -> Any:
        answer = await client.post(path, json=body, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    block = {"label": "human", "value": "She likes Go."}
    agent = await create("/v1/agents/", {"name": "ann", "model": MODEL, "memory_blocks": [block]})
    of_agent = f"/v1/agents/{agent['id']}"
    reply = await create(f"{of_agent}/messages", {"input": "hello"})
    run = await create(f"{of_agent}/messages/async", {"input": "hello again"})
    batch = await create("/v1/messages/batches", {"requests": [{"agent_id": agent["id"], "input": "hello all"}]})
    steps = (await client.get(f"/v1/runs/{run['id']}/steps")).json()
    conversation = await create(f"/v1/conversations/?agent_id={agent['id']}", {})
    archive = await create("/v1/archives/", {"name": "notes"})
    passage = await create(f"/v1/archives/{archive['id']}/passages", {"text": "Ada wrote notes."})
    (memory,) = await create(f"{of_agent}/archival-memory", {"text": "Ada wrote more."})
    folder = await create("/v1/folders/", {"name": "papers"})
    paper = {"file": ("paper.md", b"# Paper", "text/markdown")}
    answer = await client.post(f"/v1/folders/{folder['id']}/upload", files=paper, headers={"x-requested-with": "tests"})
    tool = await create("/v1/tools/", {"source_code": SOURCE})
    identity = await create("/v1/identities/", {"identifier_key": "ann", "name": "Ann", "identity_type": "user"})
    group = await create("/v1/groups/", {"agent_ids": [agent["id"]], "description": "alone"})
    config = await create("/v1/sandbox-config/local/default")
    fact = await create("/v1/facts", {"agent_id": agent["id"], "text": "Ada lives in Turin.", "subject": "Ada"})
    await create("/v1/facts/rules", {"agent_id": agent["id"], "text": "salary"})
    settings = (await client.get(f"/v1/facts/settings?agent_id={agent['id']}")).json()
    variable = await create(f"/v1/sandbox-config/{config['id']}/environment-variable", {"key": "A", "value": "x"})
    await client.patch(f"{of_agent}/tools/attach/{tool['id']}")
    await client.patch(f"{of_agent}/folders/attach/{folder['id']}")
    return {
        "agent_id": [agent["id"]],
        "message_id": [message["id"] for message in reply["messages"]],
        "run_id": [run["id"]],
        "job_id": [run["id"].replace("run", "job", 1), batch["id"]],
        "batch_id": [batch["id"]],
        "step_id": [step["id"] for step in steps] or ["step-123e4567-e89b-42d3-a456-426614174000"],
        "conversation_id": [conversation["id"]],
        "block_id": [block["id"] for block in agent["blocks"]],
        "block_label": ["human"],
        "archive_id": [archive["id"]],
        "passage_id": [passage["id"]],
        "memory_id": [memory["id"]],
        "folder_id": [folder["id"]],
        "folder_name": ["papers"],
        "group_id": [group["id"]],
        "identity_id": [identity["id"]],
        "sandbox_config_id": [config["id"]],
        "env_var_id": [variable["id"]],
        "file_id": [answer.json()["id"]],
        "fact_id": [fact["id"]],
        "entity_id": [fact["subject_id"]],
        "graph_id": [settings["graph_id"]],
        "number": ["1"],
        "tool_id": [tool["id"]],
        "tool_name": ["echo"],
    }


def _config(phase: str, examples: int, known: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "generation": {"max-examples": examples, "database": "none", "no-shrink": True, "deterministic": True},
        "phases": {name: {"enabled": name == phase} for name in ("examples", "coverage", "fuzzing", "stateful")},
        "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "501"]}},
        "dictionaries": {name: {"values": list(ids)} for name, ids in known.items()},
        "parameters": {
            f"{place}.{name}": {"dictionary": name, "probability": NAMED}
            for place in ("path", "query", "body")
            for name in known
        },
        "continue-on-failure": True,
    }


def _add_failures(event: events.ScenarioFinished, found: Found) -> None:
    for case_id, results in event.recorder.checks.items():
        for result in results:
            if result.failure_info is None:
                continue
            case, interaction = event.recorder.cases[case_id].value, event.recorder.interactions[case_id]
            answer = interaction.response
            status = "no answer" if answer is None else answer.status_code
            text = "" if answer is None else answer.content.decode(errors="replace")
            told = f"{status}: {result.failure_info.failure.message} | {text:.400} | {result.failure_info.code_sample}"
            excuse = _excuse(result.name, told, text)
            if excuse is None:
                found.failures.append(f"{result.name}: {case.operation.label} {told:.1500}")
            else:
                found.excused[excuse] += 1


def _excuse(check: str, told: str, text: str) -> str | None:
    """Why a failure is none; None: it is one."""
    if check == "positive_data_acceptance":
        detail = re.search(r'"detail":"(?:requests\.\d+: )?(.*)', text)  # of a batch's request, as alone
        rules = (rule for start, rule in RULES.items() if detail and re.match(start, detail[1]))
        return next(rules, None)
    return next((why for one, said, why in EXCUSED if one == check and re.search(said, told, re.DOTALL)), None)
