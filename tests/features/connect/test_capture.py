"""Sessions of Claude Code are stored once, without what is not said, and without credentials."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perdure import Perdure
from perdure.domain.archives.passages import NewPassage
from perdure.domain.conversations.importing import ImportedMessage
from perdure.features.connect import files, hook_command
from perdure.features.connect.capture import LINE_BYTES, MESSAGE_CHARS, Transcript
from perdure.features.notes.folders import CONTEXT_FILE, state_folder
from perdure.features.notes.projects import GLOBAL_TAG, PROJECT_TAG


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, in the home of a user whose data folder is empty."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PERDURE_PROBE_LOCAL", "0")
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    folder = tmp_path / "my project"
    (folder / ".git").mkdir(parents=True)
    return folder


def line(key: str, text: Any, role: str = "user", **more: Any) -> str:
    """A line of a transcript, as Claude Code writes it."""
    message = {"role": role, "content": text}
    entry = {"type": role, "uuid": key, "timestamp": "2026-11-29T04:00:00.000Z", "message": message, **more}
    return json.dumps(entry) + "\n"


def transcript(project: Path, session: str, *lines: str) -> Path:
    path = project.parent / ".claude" / "projects" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(lines)
    return path


def store(project: Path, session: str, path: Path) -> int | None:
    return hook_command.run(["work", "capture", str(project), session, str(path)])


def conversations() -> Mapping[str, list[str]]:
    """Summary of a conversation of the only agent -> its messages."""
    with Perdure() as perdure:
        (agent,) = perdure.agents()
        return {
            str(one.summary): [message.text for message in agent.messages(conversation=one.id)]
            for one in agent.conversations()
            if one.summary
        }


def facts() -> list[str]:
    with Perdure() as perdure:
        (agent,) = perdure.agents()
        return [hit.fact.text for hit in agent.facts.list()]


def log(project: Path) -> str:
    path = project.parent / "data" / "hooks.log"
    return path.read_text() if path.exists() else ""


def test_a_session_is_stored_as_it_grows(project: Path) -> None:
    """Each message once, although every turn stores anew; the next session begins with its facts."""
    path = transcript(
        project, "s1", line("u1", "My name is Ada."), line("a1", [{"type": "text", "text": "Hi."}], "assistant")
    )
    assert store(project, "s1", path) == 0
    assert facts() == ["The name of the user is Ada."]
    transcript(project, "s1", line("u2", "I live in Turin."), line("u3", "half")[:40])
    assert store(project, "s1", path) == store(project, "s1", path) == 0
    assert conversations() == {"Claude Code session s1": ["My name is Ada.", "Hi.", "I live in Turin."]}
    assert "Ada lives in Turin." in facts()
    transcript(project, "s1", line("u3", "half")[40:])
    store(project, "s1", path)

    assert conversations()["Claude Code session s1"][-1] == "half"
    assert "Turin" in (state_folder(project) / CONTEXT_FILE).read_text()


def test_a_resumed_session_repeats_nothing(project: Path) -> None:
    """Its transcript has another id, and begins with all that was said before; another session is another one."""
    lines = [line("u1", "First."), line("u2", "Second.")]
    store(project, "s1", transcript(project, "s1", *lines))
    store(project, "s2", transcript(project, "s2", *lines, line("u3", "Third.")))
    store(project, "s3", transcript(project, "s3", line("u9", "Other.")))

    assert conversations() == {
        "Claude Code session s1": ["First.", "Second.", "Third."],
        "Claude Code session s3": ["Other."],
    }


def test_what_nobody_said_is_left_out(project: Path) -> None:
    """Compaction, sub-agents, the program's own texts, results of tools, thoughts, and lines that are no entries."""
    blocks = [
        {"type": "thinking", "thinking": "no"},
        {"type": "text", "text": "yes"},
        {"type": "tool_use", "name": "x"},
        3,
    ]
    path = transcript(
        project,
        "s1",
        line("u1", "This session is being continued", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        line("u2", "of a sub-agent", isSidechain=True),
        line("u3", "Caveat: The messages below were generated"),
        line("u4", "<command-name>/clear</command-name>"),
        line("u5", [{"type": "tool_result", "content": "no"}]),
        line("u6", "API Error", "assistant", isApiErrorMessage=True),
        json.dumps({"type": "summary", "summary": "no", "leafUuid": "u1"}) + "\n",
        json.dumps({"type": "system", "subtype": "compact_boundary", "uuid": "u7"}) + "\n",
        "null\n",
        "no json\n",
        "[" * 100_000 + "\n",
        line("u" * 300, "no"),
        line("u8", "x" * LINE_BYTES),
        line("u9", ["text"]),
        line("a1", blocks, "assistant"),
        line("u10", "y" * (MESSAGE_CHARS + 5)),
        line("u11", "lone \ud800"),
        line("u12", [{"type": "text", "text": "[Request interrupted by user for tool use]"}]),
        line("u13", [{"type": "text", "text": one} for one in ("<ide_opened_file>a.py</ide_opened_file>", "Mend it.")]),
        line("u14", [{"type": "text", "text": one} for one in ("<system-reminder>no</system-reminder>", "And b.py.")]),
        line("u15", 5),
        json.dumps({"type": "assistant", "uuid": "a2", "message": {"model": "<synthetic>", "content": "No response"}})
        + "\n",
    )
    store(project, "s1", path)

    assert conversations() == {
        "Claude Code session s1": ["yes", "y" * MESSAGE_CHARS, "lone ?", "Mend it.", "And b.py."]
    }


def test_credentials_are_not_stored(project: Path) -> None:
    """As they are not in what an agent remembers itself."""
    key = "sk-ant-api03-" + "aB3" * 20
    store(project, "s1", transcript(project, "s1", line("u1", f"Use {key} for it.")))

    assert key not in str(conversations())
    assert key.encode() not in b"".join(
        one.read_bytes() for one in (project.parent / "data").rglob("*") if one.is_file()
    )


@pytest.mark.parametrize("session", ["../../x", "", "a/b", "x" * 200, "é", "a\n"])
def test_a_session_id_is_no_path(project: Path, session: str) -> None:
    """It is refused, with a line in the log."""
    assert store(project, session, transcript(project, "s1", line("u1", "First."))) == 1
    assert "session_id is" in log(project)


def test_only_transcripts_are_read(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing outside of the user's home, not through a link either; no device, no pipe, no folder, no other file."""
    outside = tmp_path_factory.mktemp("outside") / "x.jsonl"
    outside.write_text(line("u1", "Not mine."))
    home = project.parent
    (home / "link.jsonl").symlink_to(outside)
    (home / "zero.jsonl").symlink_to("/dev/zero")
    (home / "folder.jsonl").mkdir()
    os.mkfifo(home / "pipe.jsonl")
    (home / "secrets.txt").write_text(line("u1", "Not a transcript."))
    names = ("link.jsonl", "zero.jsonl", "folder.jsonl", "pipe.jsonl", "secrets.txt", "missing.jsonl", "a\0b.jsonl")
    assert [store(project, "s1", home / name) for name in names] == [1] * len(names)
    assert store(project, "s1", outside) == 1

    with Perdure() as perdure:
        assert list(perdure.agents()) == []
    assert len(log(project).splitlines()) == len(names) + 1


def test_a_transcript_in_a_folder_of_claude_codes_own_is_read(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where CLAUDE_CONFIG_DIR says that its files are."""
    folder = tmp_path_factory.mktemp("claude")
    (folder / "x.jsonl").write_text(line("u1", "First."))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))

    assert store(project, "s1", folder / "x.jsonl") == 0


def test_a_transcript_that_became_shorter_is_read_anew(project: Path) -> None:
    path = transcript(project, "s1", line("u1", "First."), line("u2", "Second."))
    store(project, "s1", path)
    path.write_text(line("u3", "New."))
    store(project, "s1", path)

    assert conversations() == {"Claude Code session s1": ["First.", "Second.", "New."]}


def delete_the_conversation() -> None:
    with Perdure() as perdure:
        (agent,) = perdure.agents()
        (one,) = [one for one in agent.conversations() if one.summary]
        agent.delete_conversation(one.id)


def delete_the_agent() -> None:
    with Perdure() as perdure:
        (agent,) = perdure.agents()
        agent.delete()


@pytest.mark.parametrize("delete", [delete_the_conversation, delete_the_agent])
def test_what_was_deleted_of_an_open_session_stays_deleted(project: Path, delete: Callable[[], None]) -> None:
    """What is said after that is stored, also as the session is resumed under another id."""
    lines = [line("u1", "My name is Ada.")]
    path = transcript(project, "s1", *lines)
    store(project, "s1", path)
    lines.append(line("u2", "I live in Turin.", timestamp=datetime.now(UTC).isoformat()))
    path = transcript(project, "s1", lines[-1])
    delete()
    store(project, "s1", path)
    with Perdure() as perdure:
        assert [one.summary for agent in perdure.agents() for one in agent.conversations() if one.summary] == []
    assert not any(b"Turin" in one.read_bytes() for one in state_folder(project).rglob("*") if one.is_file())
    lines.append(line("u3", "We use Go.", timestamp=datetime.now(UTC).isoformat()))
    store(project, "s1", transcript(project, "s1", lines[-1]))
    store(project, "s2", transcript(project, "s2", *lines, line("u4", "And Rust.", timestamp="2100-01-01T00:00:00Z")))

    assert conversations() == {"Claude Code session s1": ["We use Go.", "And Rust."]}


def test_a_resumed_session_does_not_bring_back_what_was_deleted(project: Path) -> None:
    """Its transcript begins with all of it."""
    lines = [line("u1", "First."), line("u2", "Second.")]
    store(project, "s1", transcript(project, "s1", *lines))
    delete_the_conversation()
    store(project, "s2", transcript(project, "s2", *lines, line("u3", "Third.", timestamp="2100-01-01T00:00:00Z")))

    assert conversations() == {"Claude Code session s2": ["Third."]}


def test_a_hundred_megabytes_are_read_line_by_line(project: Path) -> None:
    """Without being held in memory; the messages in it are found."""
    path = transcript(project, "s1", line("u1", "First."))
    with path.open("a") as file:
        for _ in range(100):
            file.write(line("u0", [{"type": "tool_result", "content": "x" * 1_000_000}]))
        file.write(line("u2", "Last."))
    found = Transcript(path)
    texts = [message.text for message in found.messages()]

    assert (texts, found.position) == (["First.", "Last."], path.stat().st_size)


@pytest.mark.slow
def test_what_was_prepared_goes_when_memory_is_corrected(project: Path) -> None:
    """By whatever door: a text that is forgotten or erased, a fact, a note, the agent; it is prepared again."""
    prepared = state_folder(project) / CONTEXT_FILE
    path = transcript(project, "s1", line("u1", "My name is Ada."), line("u2", "I live in Turin."))
    store(project, "s1", path)
    with Perdure() as perdure:
        (agent,) = perdure.agents()
        note, _ = agent.notes.add("plan", "Move to Turin", {"goal": "x"})
        facts = [hit.fact for hit in agent.facts.list()]
        other = perdure.create_agent("other")
        hook_command.run(["work", "renew", str(project)])
        other.insert_passage(NewPassage(text="Turin is a city."))
        other.forget("Turin")
        assert prepared.read_text().count("Turin") > 1
        for change in (
            lambda: agent.facts.delete(facts[-1].id),
            lambda: agent.facts.restore(facts[-1].id),
            lambda: agent.notes.delete(note.id),
            lambda: agent.undo(),
            lambda: agent.forget("Turin"),
            lambda: agent.undo(),
            lambda: agent.blocks.append("project", "Built in Turin."),
            lambda: agent.forget("Turin", erase=True),
            lambda: agent.delete(),
        ):
            change()
            assert not prepared.exists()
            hook_command.run(["work", "renew", str(project)])

    assert not prepared.exists()


def test_what_was_prepared_goes_when_words_leave_the_memory(project: Path) -> None:
    """Without a correction that could be undone: reset, archived, detached, or deleted by the id."""
    prepared = state_folder(project) / CONTEXT_FILE
    store(project, "s1", transcript(project, "s1", line("u1", "My doctor lives in Turin.")))
    said = ImportedMessage(role="user", text="We drive to Turin.", occurred_at=datetime.now(UTC))
    with Perdure() as perdure:
        (agent,) = perdure.agents()
        note, _ = agent.notes.add("handoff", "Seen in Turin", {"state": "x"})
        other, _ = agent.notes.add("plan", "Leave Turin", {"goal": "x"})
        (archive,) = agent.archives.list()
        block = agent.blocks.append("project", "Built in Turin.")
        for change in (
            lambda: agent.notes.archive(note.id),
            lambda: perdure.blocks.update(block.id, value="Built in Ghent."),
            lambda: perdure.blocks.delete(block.id),
            lambda: archive.update_passage(other.id, text="# Leave it"),
            lambda: archive.delete_passage(other.id),
            lambda: archive.delete_where(text="Turin"),
            lambda: agent.archives.detach(archive.id),
            lambda: agent.delete_conversation(agent.conversations()[-1].id),
            lambda: agent.reset(),
        ):
            agent.import_messages([said])
            hook_command.run(["work", "renew", str(project)])
            assert "Turin" in prepared.read_text()
            change()
            assert not prepared.exists()


def test_what_was_prepared_of_all_projects_goes_with_the_global_memory(project: Path) -> None:
    """And tags that users choose reach no other files."""
    prepared = state_folder(project) / CONTEXT_FILE
    with Perdure() as perdure:
        behind = perdure.create_agent("behind", tags=(GLOBAL_TAG,))
        odd = perdure.create_agent("odd", tags=(f"{PROJECT_TAG}*", f"{PROJECT_TAG}../*"))
        behind.blocks.update("human", "Ada\nlives in Turin")
        odd.blocks.update("human", "Ada")
        hook_command.run(["work", "renew", str(project)])
        odd.forget("Ada")
        odd.delete()
        assert "Turin" in prepared.read_text()
        behind.forget("Turin")

    assert not prepared.exists()


def test_work_does_not_wait_for_ever(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that hangs is a line in the log."""
    monkeypatch.setattr(files, "LOCK_S", 0.2)
    path = transcript(project, "s1", line("u1", "First."))
    store(project, "s1", path)
    with (state_folder(project) / "hook.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert store(project, "s1", path) == 1

    assert "TimeoutError: another process" in log(project)
    assert store(project, "s1", path) == 0


def test_only_the_user_reads_what_is_stored(project: Path) -> None:
    """As in the store itself, also where the data folder is open to others."""
    (project.parent / "data").mkdir(mode=0o755)
    store(project, "s1", transcript(project, "s1", line("u1", "I live in Turin.")))
    store(project, "../x", transcript(project, "s1"))
    files = list((project.parent / "data").rglob("*"))

    assert {"context.md", "s1.json", "hooks.log", "hook.lock"} <= {one.name for one in files}
    assert [one.name for one in files if one.stat().st_mode & 0o077] == []


def test_a_credential_is_masked_before_a_long_message_is_cut(project: Path) -> None:
    """Half of one looks like none."""
    text = "x" * (MESSAGE_CHARS - 33) + " postgresql://app:s3cretpassword@db/p"

    assert store(project, "s-1", transcript(project, "s-1", line("u1", text))) == 0

    assert "s3cret" not in str(conversations())
