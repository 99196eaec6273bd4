"""Answers that the code writes itself: they are read with the same care as any other, and are its own result only."""

from __future__ import annotations

import asyncio
import time
import tracemalloc

import pytest

from perdure.core.tools.sandbox import SandboxJob, SandboxLimits, SandboxResult
from perdure.toolbox.sandbox.calls import answer_bytes_max, parse_result
from tests.toolbox.sandbox.cages import LIMITS, Cage

SERVERS = ["root", "user without namespaces"]

FORGE = """
import json, os, struct, time
def send(body, fd=4):
    os.write(fd, struct.pack('<Q', len(body)) + body)
"""


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
class TestForgedAnswers:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ('{"status": "success", "value": "forged"}', "success"),
            ('{"status": "ready"}', "error"),
            ('{"status": "unavailable", "error": "x"}', "error"),
            ('{"status": "success", "value": NaN}', "error"),
            ('{"status": ["success"], "value": 1}', "error"),
            ('{"status": "error", "error": 5}', "error"),
            ('{"status": "error", "error": "x", "frames": [[1, 2, 3]]}', "error"),
            ('{"status": "success", "value": 1, "agent": {"human": "x", "other": "y"}}', "success"),
            ('{"status": "success", "value": 1, "agent": 5}', "success"),
            ("[]", "error"),
            ("no json", "error"),
            ("\\xff\\xfe", "error"),
            ('{"status": "success", "value": "\\\\ud800"}', "success"),
        ],
    )
    def test_a_forged_answer_is_no_more_than_a_result(self, cage: Cage, body: str, status: str) -> None:
        """The code may claim what it likes of its own result: it is read with the same care as any other."""
        result = cage.run(f"{FORGE}\nsend({body!r}.encode('latin-1').decode('unicode_escape').encode('latin-1'))\n")

        assert result.status == status
        assert result.agent is None
        assert str(result.value).isprintable()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "source",
        [
            "os.write(4, b'\\xff' * 8); time.sleep(60)",
            "os.write(4, struct.pack('<Q', 1 << 40)); time.sleep(60)",
            "os.write(4, struct.pack('<Q', 100)); os._exit(0)",
            "send(b'[' * 100_000)",
            "send(b'{\"status\": \"success\", \"value\": ' + b'[' * 500 + b']' * 500 + b'}')",
            "send(b'{\"status\": \"success\", \"value\": ' + b'9' * 5000 + b'}')",
            "send(b'\\x80\\x04\\x95' + b'cos\\nsystem\\n')",
            "send(b'{\"status\": \"success\", \"value\": [0' + b',[]' * 300_000 + b']}')",
            "send(b'[' + b'{\"\":[]},' * 100_000 + b'0]')",
            'send(b\'{"status": "success", "value": 1, "agent": [0\' + b\',{"":[]}\' * 110_000 + b\']}\')',
            'send(\'{"status": "success", "value": 1}\'.encode(\'utf-16\'))',
            'send(\'{"status": "success", "value": 1}\'.encode(\'utf-32-le\'))',
            "os.set_blocking(4, True)\nwhile True: os.write(4, b'x' * 65536)",
        ],
    )
    def test_an_answer_that_breaks_readers_is_an_error(self, cage: Cage, source: str) -> None:
        """Endless, cut off, too deep, too many digits, of another format."""
        result = cage.run(f"{FORGE}\n{source}\n", limits=SandboxLimits(wall_s=2, result_bytes=10_000))

        assert result.status in {"error", "crash", "timeout"}
        assert result.value is None

    @pytest.mark.slow
    def test_nobody_can_answer_for_another_call(self, cage: Cage) -> None:
        """Answers are written to every descriptor there is, while another call works."""
        forger = (
            f"{FORGE}\nfor fd in range(300):\n    try:\n"
            '        send(b\'{"status": "success", "value": "forged"}\', fd)\n    except OSError:\n        pass\n'
            "time.sleep(0.3)"
        )
        honest = "import time\ndef f():\n    time.sleep(0.3)\n    return 'honest'"

        async def both() -> list[SandboxResult]:
            jobs = [
                SandboxJob(source=honest, function="f", limits=LIMITS),
                SandboxJob(source=forger, limits=LIMITS),
                SandboxJob(source=honest, function="f", limits=LIMITS),
            ]
            return await asyncio.gather(*map(cage.sandbox.run, jobs))

        first, forged, second = cage.wait(both())

        assert (first.value, second.value) == ("honest", "honest")
        assert forged.value == "forged"
        assert cage.run("1 + 1").value == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b'{"status":"success","value":[' + b'{"":[]},' * 1_100_000 + b"0]}",
        b'{"status":"success","value":[0' + b",[]" * 2_900_000 + b"]}",
        b'{"status":"success","value":1,"frames":[0' + b",{}" * 2_900_000 + b"]}",
        b'{"status":"success","value":1,"agent":' + b"[" * 8_000_000 + b"}",
        b'{"status":"success","value":1,' + b'"a":[],' * 1_200_000 + b'"b":1}',
    ],
    ids=["objects in a list", "lists", "frames", "depth", "fields"],
)
def test_an_answer_full_of_containers_is_refused_before_it_is_parsed(body: bytes) -> None:
    """Nine megabytes of it would become gigabytes, in a process that everybody shares."""
    job = SandboxJob(source="")
    assert len(body) <= answer_bytes_max(job)
    tracemalloc.start()
    began = time.thread_time()
    try:
        result = parse_result(body, job)
        seconds, peak = time.thread_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert (result.status, result.value) == ("error", None)
    assert peak < 5 * len(body)
    assert seconds < 1, "0.1 s is usual; parsing it takes some seconds"


@pytest.mark.parametrize("cage", SERVERS, indirect=True)
def test_what_a_tool_returns_is_held_to_the_same_number(cage: Cage) -> None:
    """It hears of it in the words of its own result; dates and numbers are no lists."""
    full = cage.run("def f():\n    return [[] for _ in range(200_000)]", "f")
    fits = cage.run("def f():\n    return [[[] for _ in range(1_000)], [0] * 250_000]", "f")

    assert (full.status, full.error) == (
        "error",
        "the result holds more than 200,000 lists and dicts: return fewer, or text",
    )
    assert (fits.status, len(fits.value[1])) == ("success", 250_000)
