"""What no refusal may say: who called, SQL, values as Python prints them, files of the server."""

from __future__ import annotations

import json
import re

import httpx

_LEAKS = {
    "an actor": r"(?<!extr)actor|org-0000|user-0000",
    "SQL": r"\b(SELECT .+ FROM|INSERT INTO|UPDATE \w+ SET|DELETE FROM|constraint failed|sqlite3?|psycopg)\b",
    "Python": r"<[\w.]+ (object )?at 0x|<(class|function) |Traceback|\b[A-Za-z]+Error\(|\b(set|datetime)\(",
    "a value of Python": r"(?<![\w.'\"`/-])(None|True|False|nan|inf)(?![\w.'\"`/-])|(?<![\w/])b'(?=\w)",
    "a type of Python": r"\w+\(\w+=|\b(str|int|dict|list|tuple|bytes|float) object\b",
    "a path": r"(?<![\w/])/(home|root|work|usr|tmp|var|opt)/|site-packages|\w\.py\b",
}


def leaks_in(text: str) -> list[str]:
    """What a text says too much of, each with its words."""
    return [f"{what}: {found[0]!r}" for what, pattern in _LEAKS.items() if (found := re.search(pattern, text))]


def problems_of(refusal: httpx.Response) -> list[str]:
    """What is wrong with a refusal: what it says, or that clients send a permanent conflict again."""
    problems = leaks_in(refusal.text)
    if refusal.status_code == 409:
        # A conversation is busy until this run has ended, a group until this turn has.
        is_temporary = bool({"run_id", "turn_seq"} & json.loads(refusal.text).keys())
        if is_temporary == (refusal.headers.get("x-should-retry") == "false"):
            problems.append(f"x-should-retry of a {'temporary' if is_temporary else 'permanent'} conflict")
    return problems
