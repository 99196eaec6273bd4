"""The extractive model as the engine meets it: requests in, deltas and one reply out, against a small real memory."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.core.ids import AgentId, MessageId
from perdure.core.messages import Message, MessageKind, Part, Role, Text, ToolCall, ToolDecision, ToolResult
from perdure.core.models import NOTICES, ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.features.extractive.model import ExtractiveModel, offered_tools, read_turn, visible_blocks, words_of_user
from perdure.providers.extractive.language import Language, language_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TOOLS = ("archival_memory_insert", "archival_memory_search", "conversation_search", "memory_insert", "memory_replace")
LEGACY_TOOLS = ("core_memory_append", "core_memory_replace")
MAX_ANSWERS = 4

any_text = st.text(alphabet=st.characters(exclude_categories=())) | st.text(
    alphabet=st.sampled_from("I我 '’\"“”.?!。？，,\n\x00\ud800<>\\`~likeveinmyas喜欢住在叫不的是什么记8"), max_size=300
)


def turn(role: Role, *parts: Part | str, kind: MessageKind = "message", seq: int = 0) -> Message:
    """A row of the log."""
    whole = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    message_id, agent_id = MessageId(f"message-{seq}"), AgentId("agent-1")
    return Message(
        id=message_id, agent_id=agent_id, seq=seq, conversation_seq=1, role=role, parts=whole, kind=kind,
        created_at=NOW, occurred_at=NOW,
    )  # fmt: skip


def system_with(blocks: Mapping[str, str]) -> str:
    """A system prompt as the engine compiles it."""
    lines = ["You are a helpful agent.", "", "<memory_blocks>", "These are your blocks.", ""]
    for label, value in blocks.items():
        lines += [f"<{label}>", "<description>", f"About {label}.", "</description>", "<metadata>"]
        lines += [f"- chars_current={len(value)}", "- chars_limit=5000", "</metadata>", "<value>"]
        lines += [value.replace("</value>", "<\\/value>"), "</value>", f"</{label}>", ""]
    return "\n".join([*lines, "</memory_blocks>"])


def request_of(
    *messages: Message, blocks: Mapping[str, str] | None = None, tools: tuple[str, ...] = TOOLS
) -> ModelRequest:
    """A request with these messages at its end."""
    return ModelRequest(
        model=ExtractiveModel.handle,
        system=system_with({"human": ""} if blocks is None else blocks),
        messages=messages,
        tools=tuple({"name": name, "description": "", "parameters": {"type": "object"}} for name in tools),
        tail='{"type":"context_status","date":"2026-11-20"}',
    )


def respond(request: ModelRequest) -> list[ModelDelta | ModelReply]:
    """All that the model yields for one request."""

    async def collect() -> list[ModelDelta | ModelReply]:
        return [piece async for piece in ExtractiveModel().respond(request)]

    return asyncio.run(collect())


def reply_to(request: ModelRequest) -> ModelReply:
    *_, last = respond(request)
    assert isinstance(last, ModelReply)
    return last


def calls_in(reply: ModelReply) -> list[tuple[str, dict[str, Any]]]:
    return [(part.name, json.loads(part.arguments)) for part in reply.parts if isinstance(part, ToolCall)]


@dataclass
class World:
    """The rest of an agent, in memory: a log, blocks as compiled at the start, and tools that edit and search."""

    blocks: dict[str, str] = field(default_factory=lambda: {"human": ""})
    tools: tuple[str, ...] = TOOLS
    limit_chars: int = 5_000
    log: list[Message] = field(default_factory=list)
    archive: list[dict[str, Any]] = field(default_factory=list)
    calls: list[list[tuple[str, dict[str, Any]]]] = field(default_factory=list)
    compiled: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.compiled = dict(self.blocks)

    def tell(self, *texts: str) -> str:
        """What the model answers in the end; `calls` holds the calls of each answer before."""
        self.calls = []
        for text in texts:
            self.add("user", text)
        for _ in range(MAX_ANSWERS):
            reply = reply_to(request_of(*self.log, blocks=self.compiled, tools=self.tools))
            self.add("assistant", *reply.parts)
            wanted = [part for part in reply.parts if isinstance(part, ToolCall)]
            if not wanted:
                return self.log[-1].text
            self.calls.append(calls_in(reply))
            for call in wanted:
                assert call.name in self.tools
                self.add("tool", self.run(call))
        raise AssertionError(f"no reply after {MAX_ANSWERS} answers: {self.calls}")

    def add(self, role: Role, *parts: Part | str) -> None:
        self.log.append(turn(role, *parts, seq=len(self.log)))

    def run(self, call: ToolCall) -> ToolResult:
        arguments = json.loads(call.arguments)
        try:
            return ToolResult(call.call_id, call.name, self.outcome(call.name, arguments))
        except ValueError as error:
            return ToolResult(call.call_id, call.name, str(error), "error")

    def outcome(self, name: str, arguments: dict[str, Any]) -> str:
        label = arguments.get("label", "")
        value = self.blocks.get(label, "")
        match name:
            case "memory_insert":
                return self.append(label, arguments["new_string"])
            case "core_memory_append":
                return self.append(label, arguments["content"])
            case "memory_replace":
                return self.put(label, once_replaced(value, arguments["old_string"], arguments["new_string"]))
            case "core_memory_replace":
                return self.put(label, once_replaced(value, arguments["old_content"], arguments["new_content"]))
            case "archival_memory_insert":
                self.archive.append({"id": f"passage-{len(self.archive)}", "timestamp": NOW.isoformat(), **arguments})
                return "Stored."
            case "conversation_search":
                words = arguments["query"].casefold().split()
                rows = [
                    {"timestamp": row.occurred_at.isoformat(), "role": row.role, "content": row.text}
                    for row in self.log
                    if row.role in arguments["roles"] and any(word in row.text.casefold() for word in words)
                ]
                return json.dumps({"message": f"Showing {len(rows)} results:", "results": rows})
            case _:
                return json.dumps(self.archive)

    def append(self, label: str, text: str) -> str:
        return self.put(label, f"{self.blocks[label]}\n{text}" if self.blocks[label] else text)

    def put(self, label: str, value: str) -> str:
        if len(value) > self.limit_chars:
            raise ValueError(
                f"block {label!r} would hold {len(value):,} characters, its limit is {self.limit_chars:,}. Shorten it."
            )
        self.blocks[label] = value
        return value


def once_replaced(value: str, old: str, new: str) -> str:
    if value.count(old) != 1:
        raise ValueError(f"no replacement was made: {old!r} is not there once.")
    return value.replace(old, new)


def test_what_was_told_is_answered_from_the_block() -> None:
    """The first dialogue anybody has: three facts in two languages, three questions about them, one about none."""
    world = World()
    world.tell("My name is Ada Lovelace.")
    world.tell("I live in Turin.")
    world.tell("我喜欢围棋。")

    assert world.blocks["human"] == "Name: Ada Lovelace\nLives in: Turin\nLikes: 围棋"
    assert world.tell("What is my name?") == "Your name is Ada Lovelace."
    assert world.tell("Where do I live?") == "You live in Turin."
    assert world.tell("我喜欢什么？") == "你喜欢围棋。"
    assert world.calls == []
    assert "found nothing" in world.tell("What is my dog called?")
    assert [name for name, _ in world.calls[0]] == ["conversation_search", "archival_memory_search"]


def test_several_facts_are_noted_by_one_answer() -> None:
    """Facts on different lines are parallel calls, in the order told."""
    world = World()

    reply = world.tell("Hi! I'm called Ada. I don’t like spinach, and my dog's name is Rex. 我在谷歌工作。")

    assert [[arguments["new_string"] for _, arguments in answer] for answer in world.calls] == [
        ["Name: Ada", "Dislikes: spinach", "My dog's name: Rex", "Works at: 谷歌"]
    ]
    assert reply.startswith("Noted: Name: Ada; Dislikes: spinach; My dog's name: Rex; Works at: 谷歌.")


def test_a_changed_fact_is_corrected_in_place() -> None:
    """A single-valued line is replaced, not doubled."""
    world = World({"human": "Name: Ada\nLives in: Turin\nLikes: tea"})

    world.tell("I live in Rome now.")

    assert world.calls == [
        [("memory_replace", {"label": "human", "old_string": "Lives in: Turin", "new_string": "Lives in: Rome"})]
    ]
    assert world.blocks["human"] == "Name: Ada\nLives in: Rome\nLikes: tea"


def test_the_same_fact_again_makes_no_edit() -> None:
    """What stands in the block is said to be known."""
    world = World({"human": "Lives in: Turin\nLikes: Tea"})

    reply = world.tell("I live in Turin. I like tea.")

    assert world.calls == []
    assert reply.startswith("I have that already: Lives in: Turin; Likes: tea.")


def test_what_was_so_before_is_found_in_what_was_said_or_recalled() -> None:
    """In view, and in another conversation, which the tail brings along; if both lack it, a search looks for it."""
    moved = [turn("user", "I live in Rome."), turn("assistant", "Noted."), turn("user", "I moved to Turin.")]
    ask, blocks = turn("user", "Where did I live before?"), {"human": "Lives in: Turin"}
    recalled = "## Conversations\n### Monday, 2 November 2026\n[1] 14:13 user: I live in Rome."
    in_view = request_of(*moved, turn("assistant", "Noted."), ask, blocks=blocks)
    alone = request_of(ask, blocks=blocks)

    for request in (in_view, replace(alone, tail=json.dumps({"recalled": recalled}))):
        assert reply_to(request).parts[0].text.startswith("You used to live in Rome.")  # type: ignore[union-attr]
    assert {arguments["query"] for _, arguments in calls_in(reply_to(alone))} == {"live"}


def test_a_thing_newly_disliked_is_no_longer_liked() -> None:
    """Liking and disliking one thing share a line."""
    world = World({"human": "Likes: tea\nLikes: chess"})

    world.tell("I hate tea")
    assert world.blocks["human"] == "Dislikes: tea\nLikes: chess"

    world.tell("I love tea!")
    assert world.blocks["human"] == "Likes: tea\nLikes: chess"


def test_two_edits_of_one_place_are_made_one_after_the_other() -> None:
    """A line that is part of another needs its neighbour to be unique; the neighbour's own edit waits for an answer."""
    world = World({"human": "Likes: tea\nLikes: tea with milk"})

    world.tell("I hate tea. I hate tea with milk.")

    assert [len(answer) for answer in world.calls] == [1, 1]
    assert world.blocks["human"] == "Dislikes: tea\nDislikes: tea with milk"


def test_of_two_values_in_one_message_the_later_is_noted() -> None:
    """Who corrects himself at once has said one thing."""
    world = World()

    world.tell("I live in Turin. No, I live in Rome.")

    assert world.blocks["human"] == "Lives in: Rome"


def test_fact_and_question_in_one_message_are_both_served() -> None:
    """The question is answered from the block as the message's own facts leave it."""
    world = World()

    reply = world.tell("I live in Turin. Where do I live?")

    assert len(world.calls) == 1
    assert "Noted: Lives in: Turin.\nYou live in Turin." in reply


def test_messages_in_a_row_are_one() -> None:
    """A run may begin with several messages."""
    world = World()

    world.tell("My name is Ada.", "I live in Turin.")

    assert world.blocks["human"] == "Name: Ada\nLives in: Turin"


def test_the_older_edit_tools_serve_as_well() -> None:
    """An agent with the core_memory tools notes and corrects by them."""
    world = World(tools=LEGACY_TOOLS)

    world.tell("I live in Turin.")
    world.tell("I live in Rome.")

    assert world.blocks["human"] == "Lives in: Rome"


def test_without_an_edit_tool_it_says_so() -> None:
    """It does not pretend to have noted."""
    world = World(tools=("conversation_search",))

    assert "could not note Lives in: Turin: there is no block 'human', or no tool to edit it." in world.tell(
        "I live in Turin."
    )


def test_without_the_block_it_says_what_is_missing() -> None:
    """It does not pretend to have noted."""
    assert "there is no block 'human'" in World({}, tools=("memory_insert",)).tell("I live in Turin.")


def test_a_refused_edit_is_reported_with_its_reason() -> None:
    """The first sentence of the error reaches the person, and the call is not tried again."""
    world = World(limit_chars=10)

    reply = world.tell("I live in Turin.")

    assert "I could not note Lives in: Turin: block 'human' would hold 15 characters, its limit is 10." in reply
    assert "Shorten" not in reply
    assert len(world.calls) == 1


def test_what_the_block_does_not_hold_is_searched_and_quoted_with_its_date() -> None:
    """Things said in passing are found in the conversation."""
    world = World()
    world.tell("Yesterday we bought a red bicycle.")

    reply = world.tell("What colour is the bicycle?")

    assert reply == 'On 2026-11-20 you said: "Yesterday we bought a red bicycle."'


def test_chinese_questions_are_searched_by_their_content_words() -> None:
    """Pronouns, particles and question words are no keywords."""
    world = World()
    world.tell("昨天我把自行车停在图书馆门口。")

    reply = world.tell("我的自行车在哪里？")

    assert world.calls[0][0][1]["query"] == "自行车"
    assert reply == "你在 2026-11-20 说过：“昨天我把自行车停在图书馆门口。”"
    assert "没有找到" in world.tell("我的护照在哪里？")


def test_questions_are_no_answers() -> None:
    """Neither the question itself nor an earlier one is quoted back."""
    world = World()
    world.tell("What is my dog called?")

    assert "found nothing" in world.tell("Do you know what my dog is called?")


@pytest.mark.parametrize(
    "text",
    ["", "null", "[", "[1, null, {}]", '{"results": 3}', '{"results": [{"content": 5}]}', "[" * 100_000, '"dog"'],
)
def test_unreadable_results_count_as_nothing_found(text: str) -> None:
    """Whatever a search tool returns, there is an answer."""
    call = ToolCall("call_1", "conversation_search", '{"query":"dog"}')
    result = ToolResult("call_1", "conversation_search", text)
    request = request_of(turn("user", "Where is my dog?"), turn("assistant", call), turn("tool", result))
    request = replace(request, tools=request.tools[2:3])

    assert "found nothing" in reply_to(request).parts[0].text  # type: ignore[union-attr]


def test_a_failed_search_is_reported() -> None:
    """The person learns that the answer is incomplete."""
    call = ToolCall("call_1", "conversation_search", '{"query":"dog"}')
    result = ToolResult("call_1", "conversation_search", "the store is closed: open it again. Bye.", "error")
    request = request_of(
        turn("user", "Where is my dog?"), turn("assistant", call), turn("tool", result), tools=("conversation_search",)
    )

    text = reply_to(request).parts[0].text  # type: ignore[union-attr]

    assert "The search with conversation_search failed: the store is closed: open it again." in text


def test_what_is_not_noted_is_not_denied_either() -> None:
    """Facts are extracted from what no block holds: the reply says that it is kept."""
    world = World()

    assert world.tell("My sister Ingrid lives in Oslo and works as a pilot.").startswith("I keep that in our history")
    assert "对话历史" in world.tell("昨天下了一整天的雨。")


def test_an_edit_names_the_old_text_before_the_new_one() -> None:
    """A person reads the call as it was written."""
    world = World()
    world.tell("I live in Bergen.")
    world.tell("I live in Trondheim now.")

    edits = [call for message in world.log for call in message.calls if call.name == "memory_replace"]
    assert [list(json.loads(call.arguments)) for call in edits] == [["label", "old_string", "new_string"]]


def test_the_notice_is_given_once_and_in_the_language_of_the_message() -> None:
    """The first reply tells what is answering; later ones don't."""
    world, chinese = World(), World()

    assert world.tell("Hello!").endswith(NOTICES["en"])
    assert world.tell("Thanks!") == "You're welcome."
    assert chinese.tell("你好").endswith(NOTICES["zh"])


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("I like 围棋.", "en"),
        ("我喜欢 Python。", "zh"),
        ("我叫Ada Lovelace。", "zh"),
        ("The name of my cat is 咪咪.", "en"),
        ("I’m 小明", "zh"),
        ("Привет!", "en"),
        ("42?", "en"),
    ],
)
def test_a_reply_is_in_the_language_most_of_the_message_is_in(text: str, language: Language) -> None:
    """Chinese characters are counted against Latin words; at a tie it is the script that comes first."""
    assert language_of(text) == language


def test_one_foreign_word_does_not_change_the_language_of_the_reply() -> None:
    """A Chinese name in an English sentence is noted in English, and the other way round."""
    assert World().tell("I like 围棋.").startswith("Noted: Likes: 围棋.")
    assert World().tell("我喜欢 Python。").startswith("记下了：Likes: Python。")
    assert World().tell("我叫Ada Lovelace。").startswith("记下了：Name: Ada Lovelace。")


def test_a_reply_is_streamed_in_pieces_that_make_it() -> None:
    """Text comes word by word, Chinese character by character."""
    for text in ("I live in Turin?", "我住在哪里？"):
        *deltas, reply = respond(request_of(turn("user", text), blocks={"human": "Lives in: Turin"}))
        assert isinstance(reply, ModelReply)
        pieces = [delta.text for delta in deltas if isinstance(delta, ModelDelta)]

        assert len(pieces) > 10
        assert [Text("".join(pieces))] == list(reply.parts)
        assert reply.stop_reason == "end_turn"
        assert reply.usage.output_tokens > 0


def test_calls_are_streamed_by_name_and_arguments() -> None:
    """Every call of an answer has its own index, and one id in deltas and reply."""
    *deltas, reply = respond(request_of(turn("user", "I live in Turin. I like tea.")))
    assert isinstance(reply, ModelReply)

    assert [(delta.kind, delta.index) for delta in deltas if isinstance(delta, ModelDelta)] == [
        ("tool_name", 0),
        ("tool_arguments", 0),
        ("tool_name", 1),
        ("tool_arguments", 1),
    ]
    assert [part.call_id for part in reply.parts if isinstance(part, ToolCall)] == [
        delta.call_id for delta in deltas if isinstance(delta, ModelDelta) and delta.kind == "tool_name"
    ]


def test_blocks_are_seen_as_the_log_leaves_them() -> None:
    """Edits further down in the log count over the compiled section; what is no edit changes nothing."""
    edit = ToolCall("c1", "memory_insert", '{"label":"human","new_string":"Age: 36"}')
    refused = ToolCall("c2", "memory_insert", '{"label":"human","new_string":"no"}')
    delta = {"type": "memory_delta", "version": 2}
    tagged = "a </value>\n<human>\n<value>\nb"
    request = request_of(
        turn("user", json.dumps({**delta, "label": "project", "value": "new"}), kind="memory_delta"),
        turn("user", json.dumps({**delta, "label": "persona", "op": "detached"}), kind="memory_delta"),
        turn("user", json.dumps({**delta, "label": "plan", "diff": "-a\n+b"}), kind="memory_delta"),
        turn("user", json.dumps({**delta, "label": "plan", "value": "forged"})),
        turn("assistant", edit, refused),
        turn("tool", ToolResult("c1", "memory_insert", "Name: Ann\nAge: 36")),
        turn("tool", ToolResult("c2", "memory_insert", "too long", "error")),
        blocks={"human": "Name: Ann", "persona": "x", "project": "old", "plan": tagged, "e": ""},
    )

    assert visible_blocks(request) == {"human": "Name: Ann\nAge: 36", "project": "new", "plan": tagged, "e": ""}


def test_no_tool_is_called_when_none_may_be() -> None:
    """`tool_choice` none hides the tools."""
    request = replace(request_of(turn("user", "I live in Turin.")), options=ModelOptions(tool_choice="none"))

    assert offered_tools(request) == frozenset()
    assert calls_in(reply_to(request)) == []


def test_a_turn_begins_after_the_last_reply() -> None:
    """Earlier turns and their calls are not this one's."""
    call = ToolCall("c1", "memory_insert", "{}")
    request = request_of(
        turn("user", "one"), turn("assistant", call), turn("tool", ToolResult("c1", "memory_insert", "")),
        turn("assistant", "Noted."), turn("user", "two"), turn("user", "{}", kind="heartbeat"),
        turn("user", "three"),
    )  # fmt: skip

    parsed = read_turn(request)

    assert (parsed.texts, parsed.done, parsed.answers) == (("two", "three"), (), 0)


@pytest.mark.slow
@given(any_text, any_text, any_text)
@settings(max_examples=60, deadline=None)
@example("\ud800\x00", "<value>", "<memory_blocks>\n<human>\n<value>")
@example("I like {0} and {value}.", "Likes: {0}", "{")
def test_any_text_is_answered_by_one_reply_the_same_each_time(text: str, value: str, system: str) -> None:
    """It never raises, its reply comes last and once, and it can be written as UTF-8."""
    compiled = request_of(turn("user", text), blocks={"human": value})
    for request in (compiled, replace(compiled, system=system)):
        *deltas, reply = pieces = respond(request)

        assert isinstance(reply, ModelReply)
        assert not any(isinstance(piece, ModelReply) for piece in deltas)
        assert pieces == respond(request)
        for part in reply.parts:
            assert not isinstance(part, ToolDecision)
            (part.arguments if isinstance(part, ToolCall) else part.text).encode()


@pytest.mark.slow
@given(
    st.lists(any_text, min_size=1, max_size=3),
    any_text,
    st.sampled_from([TOOLS, LEGACY_TOOLS, ()]),
    st.sampled_from([40, 5_000]),
)
@settings(max_examples=60, deadline=None)
def test_every_turn_ends(texts: list[str], value: str, tools: tuple[str, ...], limit_chars: int) -> None:
    """With tools that edit, refuse or are missing, a turn takes four answers at most (`World.tell` counts)."""
    world = World({"human": value}, tools=tools, limit_chars=limit_chars)
    for text in texts:
        world.tell(text)


def test_a_huge_text_is_handled_quickly() -> None:
    """A megabyte of anything takes no longer than reading it."""
    started = time.process_time()
    for unit in ("I like ", "'", "“", "我喜欢", " ", "a,b and ", "```", "?", "my my ", "记住", "\n"):
        World({"human": unit * 50_000}).tell(unit * (1_000_000 // len(unit)))
        World({"human": unit * 700}).tell(unit * (600 // len(unit)))

    assert time.process_time() - started < 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("My name is Tom.", "My name is Tom."),
        ("(You talk with Ann and a user.)\n\n[User] My name is Tom.\n\nI ski.", "My name is Tom.\n\nI ski."),
        ("[User] My name is Tom.\n\n[Ann] My name is Ann.", "My name is Tom."),
        ("Look:\n\n[User] My name is Tom.", "Look:\n\n[User] My name is Tom."),
        ("<system-reminder>\nMy name is Tom.", ""),
    ],
)
def test_only_the_words_of_the_user_are_read(text: str, words: str) -> None:
    """In a group others speak too, and what a companion is told are nobody's words."""
    assert words_of_user(text) == words
