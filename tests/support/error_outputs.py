"""Outputs of tools of many kinds, each with one error planted at a place; used to see that the error is shown."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

WORDS = ["walrus", "train", "tea", "paper", "blue", "engine", "river", "code", "plan", "lumen", "orchard", "kettle"]
Make = Callable[[random.Random, int, int, str], str]
"""Makes an output of so many pieces; the error stands at the place of the number."""


def _clock(number: int) -> str:
    return f"{number // 3600 % 24:02}:{number // 60 % 60:02}:{number % 60:02}"


def _lines(form: Callable[[random.Random, int], str], *, error: str = "{error}") -> Make:
    """Lines of a form; the error is a line `error`, in which `{clock}` is its time."""

    def make(random_: random.Random, size: int, place: int, text: str) -> str:
        lines = [form(random_, number) for number in range(size)]
        lines[place] = error.replace("{clock}", _clock(place)).replace("{error}", text)
        return "\n".join(lines)

    return make


def _log(stamp: str) -> Make:
    def form(random_: random.Random, number: int) -> str:
        head = stamp.replace("{clock}", _clock(number)).replace("{ms}", f"{random_.randrange(1_000):03}")
        return f"{head}INFO worker-{number % 4} handled request {number} in {random_.randrange(1, 99)} ms"

    return _lines(form, error=stamp.replace("{ms}", "777") + "{error}")


def _value(make: Callable[[random.Random, int], object], wrap: Callable[[list[object]], object] = list) -> Make:
    """A JSON list of values, in which the error is one."""

    def write(random_: random.Random, size: int, place: int, text: str) -> str:
        values = [make(random_, number) for number in range(size)]
        values[place] = text
        return json.dumps(wrap(values))

    return write


def _records(random_: random.Random, size: int, place: int, text: str) -> str:
    rows = [{"id": f"r-{n}", "note": f"as planned {n % 3}", "ms": random_.randrange(99)} for n in range(size)]
    rows[place]["note"] = text
    return json.dumps({"data": {"rows": rows}}, indent=1)


def _map(random_: random.Random, size: int, place: int, text: str) -> str:
    nodes = {f"node-{number}": {"status": "ok", "ms": random_.randrange(99)} for number in range(size)}
    nodes[f"node-{place}"]["status"] = text
    return json.dumps(nodes)


def _ndjson(random_: random.Random, size: int, place: int, text: str) -> str:
    rows = [{"at": _clock(n), "msg": f"request {n}", "ms": random_.randrange(99)} for n in range(size)]
    rows[place]["msg"] = text
    return "\n".join(map(json.dumps, rows))


def _csv(random_: random.Random, size: int, place: int, text: str) -> str:
    rows = [f"{number},user{number % 50},{random_.randrange(1, 99)}" for number in range(size)]
    rows[place] = f"{place},user1,{text}"
    return "\n".join(["id,name,ms", *rows])


def _xml(random_: random.Random, size: int, place: int, text: str) -> str:
    items = [f"<item id='{n}'><name>{random_.choice(WORDS)}</name><ms>{n % 99}</ms></item>" for n in range(size)]
    items[place] = f"<item>{text}</item>"
    return f"<items>{''.join(items)}</items>"


def _one_line(random_: random.Random, size: int, place: int, text: str) -> str:
    words = [random_.choice(WORDS) for _ in range(size * 8)]
    words[place] = text
    return " ".join(words)


def _traces(random_: random.Random, size: int, place: int, text: str) -> str:
    lines: list[str] = []
    for number in range(size // 5):
        lines += ["Traceback (most recent call last):"]
        lines += [f'  File "/app/m{deep}.py", line {random_.randrange(500)}, in f{deep}' for deep in range(3)]
        lines += [f"ValueError: bad value {number}"]
    lines.insert(min(place, len(lines)), text)
    return "\n".join(lines)


def _diff(random_: random.Random, size: int, place: int, text: str) -> str:
    lines: list[str] = []
    for number in range(size // 4):
        lines += [f"@@ -{number * 10},3 +{number * 10},3 @@", " same", f"-old {number}", f"+new {random_.random()}"]
    lines.insert(min(place, len(lines)), f"+{text}")
    return "\n".join(["diff --git a/x b/x", "--- a/x", "+++ b/x", *lines])


def _page(random_: random.Random, size: int, place: int, text: str) -> str:
    rows = [f"<p><a href='/{n}'>{random_.choice(WORDS)}</a> {random_.choice(WORDS)} {n}</p>" for n in range(size)]
    rows[place] = f"<p>{text}</p>" if place % 2 else f"<script>\nlet x = 1\n{text}\n</script>"
    return "\n".join(["<!DOCTYPE html>", "<html><body>", *rows, "</body></html>"])


def _mixed(random_: random.Random, size: int, place: int, text: str) -> str:
    rows = json.dumps([{"id": number, "ms": random_.randrange(99)} for number in range(size // 2)])
    lines = [f"step {number} of {size}: {random_.choice(WORDS)}" for number in range(size // 2)]
    lines.insert(min(place, len(lines)), text)
    return "\n".join(["$ fetch rows", rows, "$ run", *lines])


ERROR_OUTPUTS: dict[str, Make] = {
    "iso": _log("2026-11-28T{clock}Z "), "iso, ms": _log("2026-11-28T{clock}.{ms}Z "),
    "iso, offset": _log("2026-11-28T{clock}+01:00 "), "brackets": _log("[2026-11-28T{clock}Z] "),
    "space": _log("2026-11-28 {clock} "), "comma": _log("2026-11-28 {clock},{ms} "), "clock": _log("{clock} "),
    "clock, brackets": _log("[{clock}] "), "slashes": _log("2026/11/28 {clock} "),
    "syslog": _log("Nov 28 {clock} h a: "),
    "compact": _log("20261128T{clock} "), "access, bare": _log("[28/Nov/2026:{clock} +0000] "),
    "container": _log("app-1  | "), "container, iso": _log("app-1  | 2026-11-28T{clock}Z "),
    "container, comma": _log("web_1 | 2026-11-28 {clock},{ms} "), "pipes": _log("2026-11-28|{clock}|"),
    "access": _lines(lambda r, n: f'10.0.0.{n % 250} - - [28/Nov/2026:{_clock(n)} +0000] "GET /i/{n} HTTP/1.1" 200 '
                                  f'{r.randrange(9999)} "-" "Mozilla/5.0"'),
    "listing": _lines(lambda r, n: f"-rw-r--r-- 1 root root {r.randrange(99999):>8} Nov 28 03:{n % 60:02} file_{n}.py"),
    "commits": _lines(lambda r, n: f"{r.getrandbits(28):07x} fix {r.choice(WORDS)} in {r.choice(WORDS)} {n}"),
    "search": _lines(lambda r, n: f"src/m{n % 30}.py:{n}:    {r.choice(WORDS)} = compute({n})"),
    "warnings": _lines(lambda r, n: f"src/m{n % 30}.c:{n}:{n % 80}: warning: unused variable '{r.choice(WORDS)}'"),
    "tests": _lines(lambda r, n: f"tests/test_{n % 40}.py::test_{r.choice(WORDS)}_{n} PASSED [{n % 100:3}%]"),
    "table": _lines(lambda r, n: f"| {n} | {r.choice(WORDS)} | {r.randrange(99)} |"),
    "yaml": _lines(lambda r, n: (f"- name: s{n}", f"  image: r/{r.choice(WORDS)}:{n % 9}", "  env: x")[n % 3]),
    "prose": _lines(lambda r, n: " ".join(r.choice(WORDS) for _ in range(12)) + "."),
    "source": _lines(lambda r, n: (f"def {r.choice(WORDS)}_{n}(x):", f"    return x + {n}", "")[n % 3]),
    "Chinese": _lines(lambda r, n: f"{n} 处理请求完成，用户{r.randrange(999)}成功"),
    "Chinese, one line": lambda r, n, at, e: "，".join("处理请求完成用户" if i != at else e for i in range(n)),
    "script": lambda r, n, at, e: ";".join(f"throw '{e}'" if i == at else f"function f{i}(a){{return {i}}}"
                                           for i in range(n)),
    "text in JSON": lambda r, n, at, e: json.dumps({"stdout": "\n".join(e if i == at else f"line {i} {r.choice(WORDS)}"
                                                                       for i in range(n))}),
    "numbers, lines": _lines(lambda r, n: f"{r.random():.4f}"),
    "strings": _value(lambda r, n: f"user{n}@example.com"), "equal strings": _value(lambda r, n: "connected"),
    "numbers": _value(lambda r, n: round(10 + r.random(), 3)), "lists": _value(lambda r, n: [n, n * 2, "a"]),
    "kinds": _value(lambda r, n: (1, "x", {"a": 1}, [1, 2], None, True)[n % 6]),
    "object": _value(lambda r, n: f"value {n % 3}", lambda all: {f"key_{n}": one for n, one in enumerate(all)}),
    "records": _records, "map": _map, "ndjson": _ndjson, "csv": _csv, "xml": _xml, "one line": _one_line,
    "traces": _traces, "diff": _diff, "page": _page, "mixed": _mixed,
}  # fmt: skip
ERRORS = (
    "FATAL out of memory",
    "ERROR payment failed for order 778: card declined",
    "panic: runtime error: index out of range [5] with length 3",
)
