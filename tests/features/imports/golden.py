"""Small exports of each program, shaped as real ones: branches, tools, pictures, attachments, missing times, emoji."""

# ruff: noqa: E501  # rows of data
from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

DAY = 1_732_000_000.25


def node(id_: str, parent: str | None, role: str | None = None, *parts: Any, **more: Any) -> dict[str, Any]:
    """A node of ChatGPT's tree."""
    message = None
    if role is not None:
        message = {
            "id": id_,
            "author": {"role": role, "name": more.pop("name", None), "metadata": {}},
            "create_time": more.pop("at", None),
            "content": more.pop("content", {"content_type": "text", "parts": list(parts)}),
            "status": "finished_successfully",
            "weight": more.pop("weight", 1.0),
            "metadata": more.pop("metadata", {}),
            "recipient": more.pop("recipient", "all"),
        }
    return {"id": id_, "message": message, "parent": parent, "children": []}


def chatgpt(*, current: str = "a2b", deleted: str = "") -> list[dict[str, Any]]:
    """Two conversations: one with a regenerated answer, tools and pictures, and one without any time."""
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1", "size_bytes": 10}
    files = {
        "attachments": [
            {"name": "trip.pdf", "mime_type": "application/pdf"},
            {"name": "a.png", "mime_type": "image/png"},
        ]
    }
    nodes = [
        node("root", None),
        node("sys", "root", "system", "", weight=0, metadata={"is_visually_hidden_from_conversation": True}),
        node(
            "custom",
            "sys",
            "user",
            content={"content_type": "user_editable_context", "user_profile": "I am Ada"},
            metadata={"is_visually_hidden_from_conversation": True},
        ),
        node(
            "u1",
            "custom",
            "user",
            image,
            "Where is this? 🗺️",
            at=DAY,
            content={"content_type": "multimodal_text", "parts": [image, "Where is this? 🗺️"]},
            metadata=files,
        ),
        node(
            "c1",
            "u1",
            "assistant",
            at=DAY + 5,
            recipient="python",
            content={"content_type": "code", "language": "python", "text": "find('place')"},
        ),
        node(
            "t1", "c1", "tool", name="python", at=None, content={"content_type": "execution_output", "text": "Lisbon"}
        ),
        node("a1", "t1", "assistant", "This is Lisbon.", at=DAY + 9),
        node("u2", "a1", "user", "What shall I eat there?", at=DAY + 60),
        node("a2a", "u2", "assistant", "Eat bacalhau in the Abandoned Tavern.", at=DAY + 61),
        node("a2b", "u2", "assistant", "Eat pastéis de nata.", at=DAY + 70),
        node("u3a", "a2a", "user", "Tell me of the tavern's zeppelin.", at=DAY + 80),
        node("a3a", "u3a", "assistant", "The zeppelin of the tavern is red.", at=DAY + 81),
    ]
    quiet = [
        node("q0", None, "user", "A question without a time"),
        node("q1", "q0", "assistant", "An answer \ud83d with half a pair and \u0000 in it"),
    ]
    found: list[dict[str, Any]] = [
        {
            "title": "A trip 🇵🇹",
            "create_time": DAY,
            "update_time": DAY + 90,
            "mapping": {one["id"]: one for one in nodes},
            "current_node": current,
            "conversation_id": "c-trip",
            "id": "c-trip",
        },
        {
            "title": "Quiet",
            "create_time": None,
            "mapping": {one["id"]: one for one in quiet},
            "current_node": "q1",
            "id": "c-quiet",
        },
    ]
    return [one for one in found if one["id"] != deleted]


def claude() -> list[dict[str, Any]]:
    """A conversation with an edited message, a tool, thoughts and an attachment."""

    def said(uuid: str, parent: str, sender: str, at: str | None, *content: Any, **more: Any) -> dict[str, Any]:
        return {
            "uuid": uuid,
            "parent_message_uuid": parent,
            "sender": sender,
            "created_at": at,
            "text": "",
            "content": list(content),
            "attachments": [],
            "files": [],
            **more,
        }

    def text(value: str) -> dict[str, Any]:
        return {"type": "text", "text": value}

    root = "00000000-0000-4000-8000-000000000000"
    letter = {"file_name": "letter.txt", "file_type": "txt", "extracted_content": "Dear Ada, the key is under the mat."}
    return [
        {
            "uuid": "k-1", "name": "Letters ✉️", "created_at": "2025-03-01T10:00:00.000000Z", "updated_at": "2025-03-01T10:05:00Z", "account": {"uuid": "x"},
            "chat_messages": [
                said("m1", root, "human", "2025-03-01T10:00:01Z", text("Read this old letter"), attachments=[letter]),
                said("m2", "m1", "assistant", "2025-03-01T10:00:05Z", {"type": "thinking", "thinking": "hidden thoughts"}, {"type": "tool_use", "name": "search", "input": {"q": "mat"}}, {"type": "tool_result", "name": "search", "content": [text("found")]}, text("It speaks of a key.")),
                said("m3-old", "m2", "human", "2025-03-01T10:01:00Z", text("An abandoned heliotrope question")),
                said("m3", "m2", "human", "2025-03-01T10:02:00Z", text("Where is the key?"), files=[{"file_name": "map.png"}]),
                said("m4", "m3", "assistant", None, text("Under the mat.")),
            ],
        },
        {"uuid": "k-2", "name": "", "created_at": "2025-03-02T10:00:00Z", "chat_messages": []},
    ]  # fmt: skip


CLAUDE_PROJECTS = [{"uuid": "p-1", "name": "Garden", "created_at": "2025-02-01T00:00:00Z", "prompt_template": "Answer as a gardener.", "docs": [{"uuid": "d-1", "filename": "plan.md", "content": "Plant quinces in March.", "created_at": "2025-02-02T00:00:00Z"}]}]  # fmt: skip
CLAUDE_MEMORIES = [{"conversations_memory": "Ada likes quinces.", "project_memories": {"p-1": "The garden faces south."}, "account_uuid": "x"}]  # fmt: skip

MEM0 = {
    "results": [
        {"id": "mem-1", "memory": "Ada lives in Lisbon 🏠", "user_id": "ada", "created_at": "2025-01-05T08:00:00-07:00", "updated_at": None, "metadata": {"trip": 1}, "categories": ["home"]},
        {"id": "mem-2", "memory": "Ada plays the theremin", "user_id": "ada", "created_at": None},
        {"id": "mem-3", "memory": "", "user_id": "ada"},
    ],
    "relations": [],
}  # fmt: skip

ZEP = {
    "sessions": [
        {
            "session_id": "s-1", "created_at": "2024-06-01T00:00:00Z", "metadata": {"title": "Support"},
            "messages": [
                {"uuid": "z1", "role": "Ada", "role_type": "user", "content": "My kettle is broken", "created_at": "2024-06-01T00:00:01Z"},
                {"uuid": "z2", "role": "lookup", "role_type": "tool", "content": "order 77", "created_at": None},
                {"uuid": "z3", "role": "assistant", "content": "I send a new one 🫖", "created_at": "2024-06-01T00:00:09Z"},
            ],
        }
    ],
    "edges": [
        {"uuid": "e1", "name": "OWNS", "fact": "Ada owns a kettle", "valid_at": "2024-01-01T00:00:00Z", "invalid_at": "2024-06-01T00:00:00Z"},
        {"uuid": "e2", "name": "LIKES", "fact": "Ada likes tea", "valid_at": None, "invalid_at": None, "created_at": "2024-06-02T00:00:00Z"},
    ],
}  # fmt: skip

MARKDOWN = {
    "diary.md": "---\ntitle: Diary\ndate: 2024-12-24\ntags: [snow, \"home\"]\n---\nIt snowed.\n\n# Morning\n\nWe built a snowman.\n\n```sh\n# no heading\n```\n\n## Noon\n\nSoup 🍲\n\n# Morning\n\nAgain.\n",
    "sub/empty.md": "\n",
    "sub/plain.txt": "Only a line.",
}  # fmt: skip

JSONL = [
    {"role": "user", "text": "Hello there", "occurred_at": "2025-05-01T10:00:00+02:00", "conversation": "one", "id": "1", "name": "Ada"},
    {"role": "assistant", "content": "Hello Ada", "created_at": "2025-05-01T10:00:01+02:00", "conversation": "one"},
    {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url"}], "occurred_at": 1746100000, "conversation": "two"},
    {"memory": "Ada has a boat ⛵", "created_at": "2025-05-02T10:00:00Z", "tags": ["boat"]},
]  # fmt: skip


def letta_database(path: Path) -> None:
    """Write a database as Letta's server had it."""
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            """
            CREATE TABLE agents (id TEXT, name TEXT, system TEXT, description TEXT, message_ids JSON, created_at TEXT, is_deleted INT);
            CREATE TABLE block (id TEXT, value TEXT, "limit" INT, label TEXT, description TEXT, is_deleted INT);
            CREATE TABLE blocks_agents (agent_id TEXT, block_id TEXT, block_label TEXT);
            CREATE TABLE messages (id TEXT, agent_id TEXT, role TEXT, text TEXT, content JSON, tool_calls JSON,
                tool_call_id TEXT, tool_returns JSON, name TEXT, created_at TEXT, sequence_id INT, is_deleted INT);
            CREATE TABLE archival_passages (id TEXT, text TEXT, embedding BLOB, metadata_ JSON, tags JSON, archive_id TEXT, created_at TEXT, is_deleted INT);
            CREATE TABLE archives_agents (agent_id TEXT, archive_id TEXT);
            CREATE TABLE source_passages (id TEXT, text TEXT);
            """
        )
        db.execute(
            "INSERT INTO agents VALUES ('agent-1', 'Sam', 'You are Sam.', 'old friend', '[]', '2024-05-01 08:00:00', 0)"
        )
        db.execute("INSERT INTO agents VALUES ('agent-2', 'Gone', '', '', '[]', '2024-05-01 08:00:00', 1)")
        db.execute("INSERT INTO block VALUES ('block-1', 'Ada is a pilot.', 5000, 'human', 'about her', 0)")
        db.execute("INSERT INTO blocks_agents VALUES ('agent-1', 'block-1', 'human')")
        call = [
            {
                "id": "call-1",
                "type": "function",
                "function": {"name": "send_message", "arguments": json.dumps({"message": "Hi Ada, pilot!"})},
            }
        ]
        packed = {"type": "user_message", "message": "I flew to Oslo ✈️", "time": "2024-05-02"}
        rows = [
            ("m0", "system", None, "You are Sam.\n<memory_blocks>", None, None, None, "2024-05-01 08:00:00", 1),
            ("m1", "user", None, json.dumps(packed), None, None, None, "2024-05-02 08:00:00", 2),
            ("m2", "assistant", None, None, json.dumps(call), None, None, "2024-05-02 08:00:05", 3),
            (
                "m3",
                "tool",
                None,
                json.dumps({"status": "OK", "message": "None", "time": "x"}),
                None,
                "call-1",
                None,
                None,
                4,
            ),
            ("m4", "user", "Old column text", None, None, None, None, "2024-05-03 08:00:00", 5),
        ]
        for id_, role, text, content, calls_, call_id, returns, at, seq in rows:
            shown = None if content is None else json.dumps([{"type": "text", "text": content}])
            db.execute(
                "INSERT INTO messages VALUES (?, 'agent-1', ?, ?, ?, ?, ?, ?, NULL, ?, ?, 0)",
                (id_, role, text, shown, calls_, call_id, returns, at, seq),
            )
        db.execute(
            "INSERT INTO archival_passages VALUES ('passage-1', 'Ada flies a Cessna', x'00', '{}', '[\"plane\"]', 'archive-1', '2024-05-04 08:00:00', 0)"
        )
        db.execute("INSERT INTO archives_agents VALUES ('agent-1', 'archive-1')")
        db.execute("INSERT INTO source_passages VALUES ('sp', 'of a file')")


def write_json(path: Path, value: Any) -> Path:
    """Write a value as JSON."""
    path.write_text(json.dumps(value), "utf-8")
    return path


def write_lines(path: Path, values: list[Any]) -> Path:
    """Write values as lines of JSON."""
    path.write_text("".join(f"{json.dumps(one)}\n" for one in values), "utf-8")
    return path


def write_zip(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write a ZIP file."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2025, 1, 2, 3, 4, 6))
            target.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return path


def write_chatgpt(folder: Path, **how: Any) -> Path:
    """ChatGPT's ZIP file as downloaded."""
    files: dict[str, str | bytes] = {
        "conversations.json": json.dumps(chatgpt(**how)),
        "user.json": "{}",
        "chat.html": "<html>",
        "file-1.png": b"\x89PNG",
    }
    return write_zip(folder / f"chatgpt{len([*folder.iterdir()])}.zip", files)


def write_claude(folder: Path) -> Path:
    """Claude's ZIP file as downloaded."""
    files: dict[str, Any] = {
        "conversations.json": claude(),
        "projects.json": CLAUDE_PROJECTS,
        "memories.json": CLAUDE_MEMORIES,
        "users.json": [{}],
    }
    return write_zip(folder / "claude.zip", {name: json.dumps(value) for name, value in files.items()})


def write_markdown(folder: Path) -> Path:
    """A folder of Markdown."""
    root = folder / "notes"
    for name, text in MARKDOWN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


def write_letta(folder: Path) -> Path:
    """A database of Letta's server."""
    letta_database(folder / "sqlite.db")
    return folder / "sqlite.db"


WRITERS: Mapping[str, Callable[[Path], Path]] = {
    "chatgpt": write_chatgpt,
    "claude": write_claude,
    "mem0": lambda folder: write_json(folder / "mem0.json", MEM0),
    "zep": lambda folder: write_json(folder / "zep.json", ZEP),
    "letta-db": write_letta,
    "markdown": write_markdown,
    "jsonl": lambda folder: write_lines(folder / "lines.jsonl", JSONL),
}
