"""Every error that providers document, as the typed one; asked once, and without the key."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.core.errors import (
    InvalidInput,
    ModelAuthenticationFailed,
    ModelError,
    ModelOverloaded,
    ModelRateLimited,
    ModelReplyInvalid,
    ModelRequestRefused,
    ModelStreamCut,
    ModelTimeout,
    ModelUnreachable,
)
from perdure.providers.pydantic_ai.model import DirectModel
from tests.providers.pydantic_ai.support import KEY, MODELS, PAYLOADS, answer, asking, sse
from tests.support.http_payloads import Payload

ANTHROPIC, GOOGLE, OPENAI = MODELS


def anthropic(status: int, kind: str, message: str, **headers: str) -> Payload:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoE"}
    return Payload.json(body, status=status, headers={"request-id": "req_011CSHoE"} | headers)


def gemini(status: int, name: str, message: str, details: list[Any] | None = None) -> Payload:
    error = {"code": status, "message": message, "status": name} | ({"details": details} if details else {})
    return Payload.json({"error": error}, status=status)


def openai(status: int, kind: str, code: str | None, message: str, **headers: str) -> Payload:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return Payload.json({"error": error}, status=status, headers=headers)


RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]
FILES = {ANTHROPIC: "anthropic_errors", GOOGLE: "gemini_errors", OPENAI: "openai_responses_errors"}


def documented() -> Iterator[Any]:
    """(provider, payload, name of our error) of every stored error."""
    for provider, name in FILES.items():
        for case in json.loads((PAYLOADS / f"{name}.json").read_text()):
            body = case["body"] if isinstance(case["body"], str) else json.dumps(case["body"])
            payload = Payload(
                body=body.replace("{the key}", KEY).encode(), status=case["status"], headers=case["headers"]
            )
            yield pytest.param(provider, payload, case["error"], id=f"{provider}-{case['status']}-{case['error']}")


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "payload", "kind"), list(documented()))
async def test_documented_errors(provider: str, payload: Payload, kind: str) -> None:
    with pytest.raises(ModelError) as caught:
        await answer(provider, payload)
    error = caught.value
    assert type(error).__name__ == kind
    assert error.status == payload.status
    assert f"{provider}/{MODELS[provider]}" in str(error)
    assert KEY not in f"{error} {error.exchange!r}" and "abcd" not in str(error)
    assert error.__suppress_context__  # a traceback would show what the SDK said


@pytest.mark.parametrize(
    ("provider", "payload", "seconds"),
    [
        (ANTHROPIC, anthropic(429, "rate_limit_error", "slow down", **{"retry-after": "7"}), 7),
        (GOOGLE, gemini(429, "RESOURCE_EXHAUSTED", "slow down", RETRY_INFO), 34),
        (OPENAI, openai(429, "requests", "rate_limit_exceeded", "slow down", **{"retry-after-ms": "1500"}), 1.5),
    ],
)
async def test_how_long_to_wait_is_told(provider: str, payload: Payload, seconds: float) -> None:
    with pytest.raises(ModelRateLimited) as caught:
        await answer(provider, payload)
    assert caught.value.retry_after_s == seconds and caught.value.retryable


async def test_an_error_within_an_answer() -> None:
    body = sse("anthropic_thinking_tools").body.partition(b"event: content_block_stop")[0]
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ModelOverloaded, match="Overloaded"):
        await answer(ANTHROPIC, Payload.sse(body + b"event: error\ndata: " + json.dumps(overloaded).encode() + b"\n\n"))
    with pytest.raises(ModelOverloaded, match="failed to generate"):
        await answer(OPENAI, sse("openai_responses_failed"))


@pytest.mark.parametrize("provider", MODELS)
async def test_silence_is_a_time_out(provider: str) -> None:
    with pytest.raises(ModelTimeout) as caught:
        await answer(provider, Payload(delay_s=30), timeout_s=0.2)
    assert caught.value.exchange is not None


@pytest.mark.parametrize("provider", MODELS)
async def test_nobody_listens(provider: str) -> None:
    direct = DirectModel(provider=provider, model=MODELS[provider], base_url="http://127.0.0.1:9", api_key=KEY)
    with pytest.raises(ModelUnreachable):
        await anext(aiter(direct.respond(asking(provider))))
    await direct.aclose()


@pytest.mark.parametrize("provider", MODELS)
async def test_a_connection_that_breaks_before_the_answer(provider: str) -> None:
    with pytest.raises((ModelUnreachable, ModelStreamCut)) as caught:
        await answer(provider, Payload.sse(b"", cut=True))
    assert caught.value.retryable


async def test_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for provider in MODELS:
        direct = DirectModel(provider=provider, model=MODELS[provider])
        with pytest.raises(ModelAuthenticationFailed, match="_API_KEY"):
            await anext(aiter(direct.respond(asking(provider))))


async def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai.models.anthropic", None)
    direct = DirectModel(provider=ANTHROPIC, model="m", api_key=KEY)
    with pytest.raises(ModelRequestRefused, match=r'pip install "perdure\[anthropic\]"'):
        await anext(aiter(direct.respond(asking(ANTHROPIC))))


async def test_a_provider_that_nobody_knows() -> None:
    direct = DirectModel(provider="no-such-provider", model="m", api_key=KEY)
    with pytest.raises(ModelRequestRefused, match="no-such-provider"):
        await anext(aiter(direct.respond(asking(ANTHROPIC))))


def test_bad_values() -> None:
    with pytest.raises(InvalidInput, match="timeout_s"):
        DirectModel(provider="anthropic", model="m", timeout_s=0)
    with pytest.raises(InvalidInput, match="name"):
        DirectModel(provider="anthropic", model="")


def test_importing_does_not_import_pydantic_ai() -> None:
    program = (
        "import sys, perdure, perdure.providers.pydantic_ai.model as p; p.DirectModel(provider='anthropic', model='m');"
        "print([m for m in sys.modules if m.partition('.')[0] in ('pydantic_ai', 'anthropic', 'openai', 'google')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("provider", [*MODELS, "openai-chat"])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
async def test_an_event_that_nests_deeply_is_a_failure_of_the_provider(provider: str, opening: str) -> None:
    """Not a defect of ours: what parses it gives up, by an error that is none of a provider's."""
    begin = b'{"type":"message_start","message":' if provider == ANTHROPIC else b'{"candidates":'
    with pytest.raises((ModelReplyInvalid, ModelStreamCut)):
        await answer(provider, Payload.sse(b"data: " + begin + opening.encode() * 15_000 + b"\n\n"), model="m")


@pytest.mark.slow
@pytest.mark.parametrize("provider", [*MODELS, "openai-chat", "vllm"])
@pytest.mark.parametrize("kind", ["full", "full and packed", "packed twice", "a bomb"])
async def test_an_answer_that_is_too_large_is_not_read(provider: str, kind: str) -> None:
    """The SDKs parse whatever comes; they are not given it."""
    full = b'{"":[' + b'{"":[]},' * 100_000 + b"0]}"
    headers = {"content-type": "text/event-stream", "content-encoding": "gzip"}
    match kind:
        case "full":
            payload = Payload.sse(b"data: " + full + b"\n\n")
        case "full and packed":
            payload = Payload(body=gzip.compress(full, 1), headers=headers)
        case "packed twice":
            payload = Payload(body=gzip.compress(b"x"), headers=headers | {"content-encoding": "gzip, gzip"})
        case _:
            payload = Payload(body=gzip.compress(b" " * (9 << 20), 1), headers=headers)

    with pytest.raises(ModelReplyInvalid, match="is not read"):
        await answer(provider, payload, model="m")
