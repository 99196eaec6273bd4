"""What local models remember and how long they take, as a table in `docs/models.md`.

`python -m benchmarks.local_models --python PYTHON --folder FOLDER` serves each GGUF file of a folder, one at a time,
with the `xllamacpp` of that Python; `--server NAME=URL` measures one that is running, as often as it is given. Of each
model an agent with all defaults is told ten things, and asked twenty questions in a new conversation. Rows of models
that are not measured now stay in the table. `--print` writes nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perdure import AsyncAgent, AsyncPerdure, Delta, PerdureError, StoredEvent
from perdure.core.events import MessageAdded
from perdure.core.ids import ConversationId, StepId
from perdure.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
TALK = Path(__file__).with_name("local_talk.json")
BEGIN, END = "<!-- local models: begin -->", "<!-- local models: end -->"
HEAD = (
    "| model | tokens of the first prompt | time to the first word | right of 20 | calls as text read |",
    "|---|---|---|---|---|",
)
LOADING_S = 300.0
VARIABLES = ("OPENAI_API_KEY", "OPENAI_API_BASE", "PERDURE_MODEL")
SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port, params.n_ctx = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
params.hostnames, params.use_jinja, params.n_parallel = ["127.0.0.1"], True, 1
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""


@dataclass(frozen=True)
class Measured:
    """What one model did.

    Args:
        prompt_tokens: of the first request, as its server counted them.
        first_word_s: from the first message to the first piece of its answer.
        right: how many of the questions were answered.
        read_calls: calls that it wrote in the text of an answer, and that were run.
        errors: messages without an answer.
    """

    prompt_tokens: int = 0
    first_word_s: float = 0.0
    right: int = 0
    asked: int = 0
    read_calls: int = 0
    errors: int = 0

    def row(self, name: str) -> str:
        """The row of a table."""
        right = f"{self.right}" if not self.errors else f"{self.right} ({self.errors} without an answer)"
        return f"| {name} | {self.prompt_tokens:,} | {self.first_word_s:.1f} s | {right} | {self.read_calls} |"


async def measure(url: str, talk: dict[str, list[list[str]]]) -> Measured:
    """Measure the model of a server, as somebody gets it who sets nothing but the address."""
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ |= {"OPENAI_BASE_URL": url, "PERDURE_PROBE_LOCAL": "0"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PERDURE_HOME"] = folder
        async with await AsyncPerdure.open(Path(folder) / "talk.db", settings=Settings(home=folder)) as perdure:
            choice = await perdure.app.choose()
            print(f"  {choice.handle}", flush=True)
            agent = await perdure.create_agent("measured")
            measured = Measured()
            for text in talk["tell"]:
                measured, _ = await _say(agent, str(text), None, measured)
            conversation = (await agent.new_conversation()).id
            for question, pattern in talk["ask"]:
                measured, answer = await _say(agent, question, conversation, measured)
                is_right = re.search(pattern, answer, re.IGNORECASE | re.DOTALL) is not None
                measured = replace(measured, right=measured.right + is_right, asked=measured.asked + 1)
                print(f"  {'+' if is_right else '-'} {question} {' '.join(answer.split())[:100]}", flush=True)
            return measured


async def _say(
    agent: AsyncAgent, text: str, conversation: ConversationId | None, measured: Measured
) -> tuple[Measured, str]:
    """Send a message; what was measured by then, and the answer."""
    began, said, first_s = time.perf_counter(), list[str](), 0.0
    calls, errors = 0, 0
    try:
        async for sent in agent.stream(text, conversation=conversation):
            if isinstance(sent, Delta) and sent.kind in ("text", "reasoning") and not first_s:
                first_s = time.perf_counter() - began
            if not isinstance(sent, StoredEvent) or not isinstance(sent.event, MessageAdded):
                continue
            message = sent.event.message
            if message is not None and message.role == "assistant" and message.kind == "message":
                said.append(message.text)
                calls += len(message.calls) if await _is_text(agent, message.step_id) else 0
    except PerdureError as error:
        print(f"  {text!r:.40}: {error}", flush=True)
    answer = "\n".join(filter(None, said))
    errors += not answer.strip()
    if not measured.prompt_tokens:
        steps = await agent.steps(limit=1)
        tokens = steps[0].usage.input_tokens if steps else 0
        measured = replace(measured, prompt_tokens=tokens, first_word_s=first_s)
    return replace(measured, read_calls=measured.read_calls + calls, errors=measured.errors + errors), answer


async def _is_text(agent: AsyncAgent, step_id: StepId | None) -> bool:
    """Whether the model of a step made no call by the API's own field."""
    exchange = None if step_id is None else await agent.exchange(step_id)
    return exchange is not None and not exchange.response.get("message", {}).get("tool_calls")


@contextlib.contextmanager
def served(python: str, file: Path, window: int) -> Iterator[str]:
    """The address of a server of this model, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-c", SERVE, str(file), str(port), str(window)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + LOADING_S
        while not _is_ready(f"{url}/health"):
            if server.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{file.name} is not served by {python}: is xllamacpp installed there?")
            time.sleep(0.5)
        yield f"{url}/v1"
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)
        server.kill()
        server.wait()


def _is_ready(url: str) -> bool:
    """Whether a server has loaded its model."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def with_rows(page: str, rows: Sequence[str]) -> str:
    """The page with these rows in its table, in place of those of the same models. Raises: SystemExit."""
    before, begin, rest = page.partition(BEGIN)
    old, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{PAGE} has no {BEGIN} and {END}")
    known = [line for line in old.splitlines() if line.startswith("| ")][1:]
    by_model = {row.split("|")[1].strip(): row for row in (*known, *rows)}
    return "\n".join([before + BEGIN, "", *HEAD, *by_model.values(), "", END + after])


def main() -> int:
    """Measure, print the table and write it to the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local_models")
    parser.add_argument("--folder", type=Path, help="a folder of GGUF files")
    parser.add_argument("--python", default=sys.executable, help="a Python that has xllamacpp")
    parser.add_argument("--window", type=int, default=16_384, help="the window of served models, in tokens")
    parser.add_argument("--only", action="append", default=[], help="the name of a file in the folder, without .gguf")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL", help="a server that is running")
    parser.add_argument("--talk", type=Path, default=TALK, help="what is told and asked")
    parser.add_argument("--print", action="store_true", help="only print")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # else a served model would go on alone
    talk = json.loads(options.talk.read_text(encoding="utf-8"))
    files = sorted(options.folder.glob("*.gguf")) if options.folder else []
    rows: list[str] = []
    for file in files:
        if options.only and file.stem not in options.only:
            continue
        print(file.stem, flush=True)
        with served(options.python, file, options.window) as url:
            rows.append(asyncio.run(measure(url, talk)).row(file.stem))
    for named in options.server:
        name, _, url = named.partition("=")
        print(name, flush=True)
        rows.append(asyncio.run(measure(url, talk)).row(name))
    if not rows:
        parser.error("give --folder with GGUF files in it, or --server NAME=URL")
    print("\n".join((*HEAD, *rows)))
    if not options.print:
        PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
