"""Outputs of tools, one of each kind, made from a seed; `MARKS` are what a shortened form must still show."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

WORDS = [
    "alpha",
    "bravo",
    "cedar",
    "delta",
    "ember",
    "frost",
    "grove",
    "harbor",
    "island",
    "juniper",
    "kettle",
    "lumen",
    "meadow",
    "north",
    "orchard",
]


def _hex(random_: random.Random, count: int) -> str:
    return "".join(random_.choice("0123456789abcdef") for _ in range(count))


def records(size: int = 300) -> str:
    """Rows of a database: one odd plan, one odd amount, one note of an error."""
    random_ = random.Random(1)
    rows = []
    for number in range(size):
        row = {
            "id": 5_000 + number,
            "plan": random_.choice(["basic", "basic", "basic", "team"]),
            "amount": random_.randrange(100, 900),
            "active": number % 7 != 0,
            "owner": {"name": f"{random_.choice(WORDS)}-{_hex(random_, 6)}", "region": "eu-1"},
            "tags": random_.sample(WORDS, number % 3),
            "manager": None,
        }
        if number == size // 3:
            row["plan"] = "legacy-77"
        if number == size // 2:
            row["amount"] = 8_123_456
        if number == 2 * size // 3:
            row["note"] = "charge failed: card CX-4411"
        rows.append(row)
    return json.dumps(rows)


def pods(size: int = 120) -> str:
    """A list of Kubernetes pods as `kubectl` prints it: what is odd stands deep inside."""
    random_ = random.Random(2)
    items = []
    for number in range(size):
        name = f"web-{_hex(random_, 8)}-{_hex(random_, 5)}"
        status: dict[str, object] = {
            "phase": "Running",
            "podIP": f"10.1.{number // 200}.{number % 200 + 2}",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": f"2026-11-02T10:{number % 60:02}:11Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": f"2026-11-02T10:{number % 60:02}:03Z"},
            ],
            "containerStatuses": [
                {"name": "app", "ready": True, "restartCount": random_.randrange(3), "started": True}
            ],
        }
        if number == 40:
            status["phase"] = "Pending"
            status["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "taint dedicated=gpu-x9"}]
            del status["containerStatuses"]
        if number == 77:
            status["containerStatuses"] = [{"name": "app", "ready": False, "restartCount": 3_117, "started": True}]
        image = "registry.local/web:1.4.2" if number != 90 else "registry.local/web:1.4.2-hotfix9"
        items.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": random_.choice(["shop", "shop", "shop", "core"]),
                    "uid": f"{_hex(random_, 8)}-{_hex(random_, 4)}-{_hex(random_, 12)}",
                    "labels": {
                        "app": "web",
                        "app.kubernetes.io/part-of": "store",
                        "pod-template-hash": name.split("-")[1],
                    },
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name.rsplit("-", 1)[0]}
                    ],
                },
                "spec": {
                    "nodeName": f"node-{number % 9}",
                    "restartPolicy": "Always",
                    "containers": [
                        {
                            "name": "app",
                            "image": image,
                            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
                            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m"}},
                            "env": [{"name": "LOG_LEVEL", "value": "info"}, {"name": "POD", "value": name}],
                        }
                    ],
                },
                "status": status,
            }
        )
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=4)


def issues(size: int = 60) -> str:
    """Issues of a repository, as an API gives them: addresses that repeat, users, labels, long texts."""
    random_ = random.Random(3)
    users = [(f"{word}dev", random_.randrange(10_000, 99_999)) for word in WORDS]
    out = []
    for number in range(size):
        login, user_id = random_.choice(users)
        base = f"https://api.example.test/repos/acme/shop/issues/{900 + number}"
        body = "\n".join(" ".join(random_.choices(WORDS, k=12)) + "." for _ in range(random_.randrange(1, 8)))
        out.append(
            {
                "url": base,
                "labels_url": base + "/labels{/name}",
                "comments_url": base + "/comments",
                "html_url": f"https://example.test/acme/shop/issues/{900 + number}",
                "id": 7_000_000 + number * 13,
                "node_id": f"I_{_hex(random_, 16)}",
                "number": 900 + number,
                "title": " ".join(random_.choices(WORDS, k=5)) if number != 21 else "Deadlock in ledger QX-88120",
                "user": {
                    "login": login,
                    "id": user_id,
                    "avatar_url": f"https://avatars.example.test/u/{user_id}?v=4",
                    "url": f"https://api.example.test/users/{login}",
                    "type": "User",
                    "site_admin": False,
                },
                "labels": [
                    {"id": 40 + index, "name": label, "color": "ededed", "default": False}
                    for index, label in enumerate(random_.sample(["bug", "docs", "infra"], random_.randrange(3)))
                ],
                "state": "open",
                "locked": False,
                "comments": random_.randrange(12) if number != 35 else 911,
                "created_at": f"2026-10-{1 + number % 28:02}T08:{number % 60:02}:00Z",
                "closed_at": None,
                "reactions": {"url": f"{base}/reactions", "total_count": 0, "+1": 0, "-1": 0},
                "body": body,
            }
        )
    return json.dumps(out)


def json_string() -> str:
    """An answer of a tool server: JSON inside a string inside JSON."""
    return json.dumps({"content": [{"type": "text", "text": records(120)}], "isError": False})


def ndjson(size: int = 400) -> str:
    """A service's log, one object to a line."""
    random_ = random.Random(4)
    lines = []
    for number in range(size):
        row: dict[str, object] = {
            "time": f"2026-11-03T{number // 60:02}:{number % 60:02}:07.{random_.randrange(100, 999)}Z",
            "level": "info",
            "route": random_.choice(["/cart", "/login", "/items"]),
            "ms": round(random_.gauss(40, 5), 1),
            "request": f"rq-{_hex(random_, 10)}",
        }
        if number == 250:
            row |= {"level": "error", "message": "payment gateway timed out, trace 7f00c1d2"}
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


def csv_table(size: int = 500) -> str:
    """A price list with quotes."""
    random_ = random.Random(5)
    lines = ["sku,name,group,price,digest"]
    for number in range(size):
        group = random_.choice(["tools", "garden", "kitchen"]) if number != 210 else "recalled-z4"
        price = random_.randrange(100, 5_000) if number != 333 else 99_000_111
        lines.append(
            f'S{number:04},"{random_.choice(WORDS)}, {random_.choice(WORDS)}",{group},{price},{_hex(random_, 12)}'
        )
    return "\n".join(lines) + "\n"


def text_table(size: int = 200) -> str:
    """What `ps` prints: columns at fixed places."""
    random_ = random.Random(6)
    lines = [f"{'USER':<10}{'PID':>7} {'%CPU':>5} {'STAT':<6}COMMAND"]
    for number in range(size):
        cpu = f"{random_.random():.1f}" if number != 77 else "398.7"
        user = random_.choice(["root", "www", "www"]) if number != 150 else "intruder"
        lines.append(
            f"{user:<10}{1000 + number * 3:>7} {cpu:>5} {'S':<6}/usr/bin/{random_.choice(WORDS)} --worker {number}"
        )
    return "\n".join(lines)


def syslog(size: int = 600) -> str:
    """A system's log with three services and one kill."""
    random_ = random.Random(7)
    lines = []
    for number in range(size):
        stamp = f"Nov 21 0{number // 3600}:{number // 60 % 60:02}:{number % 60:02} host3"
        match number % 3:
            case 0:
                lines.append(f"{stamp} sshd[{800 + number % 5}]: session opened for user u{random_.randrange(9)}")
            case 1:
                lines.append(
                    f"{stamp} app[411]: GET /items/{random_.randrange(999)} 200 in {random_.randrange(20, 40)} ms"
                )
            case _:
                lines.append(f"{stamp} cron[99]: job sync-{random_.randrange(4)} finished")
    lines[size // 2] = "Nov 21 00:05:01 host3 kernel: Out of memory: Killed process 4242 (indexer) rss:7123kB"
    lines[size * 3 // 4] = "Nov 21 00:07:31 host3 chronyd[7]: clock stepped by 17.334 s"
    return "\n".join(lines) + "\n"


def test_report(size: int = 300) -> str:
    """What a test runner prints, with one failure."""
    lines = ["============ test session starts ============", f"collected {size} items", ""]
    for number in range(size):
        state = "FAILED" if number == 140 else "PASSED"
        name = f"tests/test_{WORDS[number // 40]}.py::test_{WORDS[number % 15]}[{number}]"
        lines.append(f"{name} {state}".ljust(72) + f"[{100 * number // size:3}%]")
    lines += ["", "================= FAILURES =================", "____ test_cedar ____", "    def test_cedar(n):"]
    lines += [
        ">       assert total == 12, 'ledger BX-5519'",
        "E       AssertionError: ledger BX-5519",
        "E       assert 11 == 12",
    ]
    lines += ["", f"========= 1 failed, {size - 1} passed in 3.21s ========="]
    return "\n".join(lines) + "\n"


def build_log(size: int = 150) -> str:
    """A compiler's warnings, and a link that fails."""
    random_ = random.Random(8)
    lines = []
    for number in range(size):
        file = f"src/{random_.choice(WORDS)}.c"
        if number % 6 == 0:
            lines.append(f"cc -Wall -Wextra -O2 -Iinclude -c {file} -o build/{file[4:-2]}.o")
        column = random_.randrange(5, 60)
        lines.append(
            f"{file}:{random_.randrange(900)}:{column}: warning: unused variable '{random_.choice(WORDS)}' [-Wunused]"
        )
        lines.append(
            f"  {random_.randrange(10, 900)} |     int {random_.choice(WORDS)} = {random_.choice(WORDS)}({number});"
        )
        lines.append("      |         ^~~~~")
    lines += ["/usr/bin/ld: main.o: in function `main':", "main.c:(.text+0x1f): undefined reference to `settle_v9'"]
    lines += ["collect2: error: ld returned 1 exit status", "make: *** [Makefile:12: shop] Error 1"]
    return "\n".join(lines) + "\n"


def search_results(size: int = 200) -> str:
    """What `grep -rn` prints."""
    random_ = random.Random(9)
    lines = []
    for number in range(size):
        file = f"lib/{WORDS[number // 20]}/{WORDS[number // 5 % 15]}.py"
        text = f'        raise ValueError("{random_.choice(WORDS)} is no {random_.choice(WORDS)}")'
        if number == 120:
            text = '    raise LedgerError("LX-2291 rolled back")'
        lines.append(f"{file}:{number % 5 * 31 + 7}:{text}")
    return "\n".join(lines) + "\n"


def source() -> str:
    """A module of Python."""
    random_ = random.Random(10)
    parts = ['"""Rules of the shop."""', "", "import json", "import re", "", "LIMIT_OF_RETRIES = 6143", ""]
    for word in WORDS:
        parts += [f"class {word.title()}:", f'    """Holds {word}."""', ""]
        for verb in ("open", "close", "count"):
            parts += [f"    def {verb}_{word}(self, value: int, name: str = '{word}') -> int:"]
            parts += [
                f'        """{verb.title()} the {word}."""',
                "        total = 0",
                "        for item in range(value):",
            ]
            parts += [
                f"            if item % {random_.randrange(2, 9)} == 0 and name:",
                "                total += item * value",
            ]
            parts += [f"        self.{random_.choice(WORDS)} = total", "        return total", ""]
    return "\n".join(parts)


def minified() -> str:
    """JavaScript on one line."""
    random_ = random.Random(11)
    pieces = [
        f"function {random_.choice(WORDS)[:2]}{n}(e,t){{return e.{random_.choice(WORDS)}(t)+{n}}}" for n in range(150)
    ]
    return "!function(){" + ";".join(pieces) + ";var limitOfRetries=6143}();"


def diff() -> str:
    """Changes of a few files."""
    random_ = random.Random(12)
    lines = []
    for word in WORDS[:8]:
        lines += [f"diff --git a/src/{word}.py b/src/{word}.py", f"index {_hex(random_, 7)}..{_hex(random_, 7)} 100644"]
        lines += [f"--- a/src/{word}.py", f"+++ b/src/{word}.py"]
        for start in (10, 80):
            lines.append(f"@@ -{start},7 +{start},7 @@ def {word}():")
            lines += [f"     {random_.choice(WORDS)} = {random_.choice(WORDS)}()" for _ in range(3)]
            lines += [f"-    limit = {random_.randrange(99)}", f"+    limit = {random_.randrange(99)}"]
            lines += [f"     {random_.choice(WORDS)}({random_.randrange(9)})" for _ in range(3)]
    lines.append("+RETRY_BUDGET = 'RB-7781'")
    return "\n".join(lines) + "\n"


def html() -> str:
    """A page of documentation."""
    random_ = random.Random(13)
    rows = []
    for number in range(80):
        text = "&nbsp;".join(random_.choices(WORDS, k=9))
        code = f'<td class="code"><a href="#{number}">{text}</a><br>\n&nbsp;</td>'
        rows.append(f'<tr><td class="decor">{number}</td>\n{code}</tr>')
    rows[40] = '<tr><td class="decor">40</td>\n<td class="code">the default limit of prefixes is 6143</td></tr>'
    head = '<!DOCTYPE html>\n<html lang="en"><head><title>Shop</title>\n<style>td{color:red}</style>'
    return f"{head}</head>\n<body><table>\n" + "\n".join(rows) + "\n</table></body></html>\n"


def markdown() -> str:
    """Notes with headings, lists, a table and code."""
    random_ = random.Random(14)
    lines = ["# Shop", ""]
    for word in WORDS:
        lines += [f"## {word.title()}", "", " ".join(random_.choices(WORDS, k=40)) + ".", ""]
        lines += [f"- {' '.join(random_.choices(WORDS, k=8))}" for _ in range(4)]
        lines += [
            "",
            "| name | value |",
            "| --- | --- |",
            f"| {word} | {random_.randrange(99)} |",
            "",
            "```",
            f"run {word}",
            "```",
            "",
        ]
    lines.append("The limit of retries is 6143.")
    return "\n".join(lines)


def mixed() -> str:
    """What a shell prints for several commands in a row."""
    return (
        "$ ps aux\n" + text_table(60) + "\n$ curl -s localhost/rows\n" + records(60) + "\n$ tail app.log\n" + syslog(90)
    )


OUTPUTS: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        *(records, pods, issues, json_string, ndjson, csv_table, text_table, syslog, test_report, build_log),
        *(search_results, source, minified, diff, html, markdown, mixed),
    )
}

MARKS: dict[str, tuple[str, ...]] = {
    "records": ("legacy-77", "8123456", "CX-4411"),
    "pods": ("Pending", "gpu-x9", "3117", "1.4.2-hotfix9"),
    "issues": ("QX-88120", "911"),
    "json_string": ("legacy-77", "8123456", "CX-4411"),
    "ndjson": ("7f00c1d2",),
    "csv_table": ("recalled-z4", "99000111"),
    "text_table": ("398.7", "intruder"),
    "syslog": ("4242", "7123kB", "17.334"),
    "test_report": ("BX-5519", "1 failed, 299 passed"),
    "build_log": ("settle_v9", "Error 1"),
    "search_results": ("LX-2291",),
    "source": ("6143",),
    "minified": ("6143",),
    "diff": ("RB-7781",),
    "html": ("6143",),
    "markdown": ("6143",),
    "mixed": ("legacy-77", "8123456", "CX-4411"),
}
