"""Calls that models write as text: which are run, which are told back, and that none is shown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.core.errors import ModelOverloaded
from perdure.core.messages import Reasoning, Text, ToolCall, unlogged_message
from perdure.core.models import Calling, Exchange, ModelDelta, ModelOptions, ModelReply, ModelRequest
from perdure.core.runs import Usage
from perdure.providers.text_calls.model import TextCalls
from perdure.providers.text_calls.request import RequestFacts
from perdure.providers.text_calls.scan import Scanner
from perdure.testing import ScriptedModel, calls, says
from tests.providers.text_call_examples import (
    ARGUMENTS,
    CALL,
    RUN,
    SOURCE,
    TOLD,
    TOOLS,
    TRAPS,
    Heard,
    J,
    request_of,
    tool_row,
)

NEEDS_A_TOOL = frozenset(
    (
        *("Python by position", "Python in a list", "a tool and its input", "action in words", "the name as a key"),
        *("arguments beside the name", "the name before an object", "backticks"),
    )
)
"""Forms that are calls only by a known name, or mentions behind words."""

ENVELOPE = '{"type": "context_status", "date": "2026-11-28", "marker": "123"}'


@pytest.mark.parametrize("form", RUN)
async def test_an_answer_that_is_a_call_is_run(form: str) -> None:
    """In whatever form; nothing of it is shown, and readers hear of a real call."""
    heard = await Heard(RUN[form]).of(request_of())

    assert [(name, {**found, "new_string": found["new_string"].replace("\n", " ")}) for name, found in heard.calls] == [
        ("memory_insert", ARGUMENTS)
    ]
    assert not heard.shown.strip() and not heard.text and len(heard.model.requests) == 1
    assert [one.kind for one in heard.deltas if one.kind != "reasoning"] == ["tool_name", "tool_arguments"]
    assert heard.traits.calling == "text"


@pytest.mark.parametrize("between", ["\n", "\n\n", ";\n"])
@pytest.mark.parametrize("form", ["a fence", "bare", "a tag", "Python"])
async def test_several_calls_are_run_in_their_order(form: str, between: str) -> None:
    """Each with an id of its own."""
    second = RUN[form].replace("Name: Ada", "Lives in: Turin")

    heard = await Heard(f"{RUN[form]}{between}{second}").of(request_of())

    assert [found["new_string"] for _, found in heard.calls] == ["Name: Ada", "Lives in: Turin"]
    assert len({part.call_id for part in heard.reply.parts if isinstance(part, ToolCall)}) == 2


@pytest.mark.parametrize("form", TOLD)
async def test_what_looks_like_a_call_is_told_once_and_not_shown(form: str) -> None:
    """The model gets its answer back with what is wrong, and what it says then is the answer."""
    answer, problem = TOLD[form]

    heard = await Heard(answer).of(request_of())

    assert heard.calls == [] and len(heard.model.requests) == 2
    assert problem in heard.model.requests[1].messages[-1].text
    assert "memory" not in heard.shown and "{" not in heard.shown and "```" not in heard.shown
    assert heard.shown.strip() == heard.text.strip() != ""


@pytest.mark.parametrize("form", TOLD)
async def test_a_model_that_insists_is_answered_with_what_is_left(form: str) -> None:
    """Its prose without the call, or a sentence that says so."""
    answer, _ = TOLD[form]

    heard = await Heard(model=ScriptedModel(says(answer), says(answer))).of(request_of())

    assert heard.calls == [] and len(heard.model.requests) == 2
    assert "memory" not in heard.shown and "{" not in heard.shown
    assert heard.shown.strip() == heard.text.strip() != ""


async def test_a_call_that_comes_when_asked_again_is_run() -> None:
    """Behind the words that were shown already; the words around the second one are not."""
    told = "Sure! I'll store that.\n\n"
    for second in (says(J(CALL)), calls("memory_insert", **ARGUMENTS)):
        heard = await Heard(model=ScriptedModel(says(told + J(CALL)), second)).of(request_of())

        assert heard.calls == [("memory_insert", ARGUMENTS)]
        assert heard.shown == heard.text == told


async def test_words_that_come_when_asked_again_follow_those_that_were_shown() -> None:
    """What is left of both is the answer, and the same is shown and stored."""
    heard = await Heard(f"Sure, let me look.\n{J(CALL)}").of(request_of())

    assert heard.shown == heard.text == "Sure, let me look.\n\nDone, noted."


@pytest.mark.parametrize("memory", ["", "Your notes:\nhuman: Ada", "<memory_blocks>\nAda\n</memory_blocks>"])
async def test_an_example_in_the_base_prompt_is_no_quotation(memory: str) -> None:
    """Its author tells the model to make just such a call."""
    heard = await Heard(J(CALL)).of(request_of(system=f"Answer with a call such as {J(CALL)}.\n\n{memory}"))

    assert heard.calls == [("memory_insert", ARGUMENTS)]


@pytest.mark.parametrize("trap", TRAPS)
async def test_what_only_holds_a_call_is_shown_as_it_is(trap: str) -> None:
    """Data, code and examples are the answer; nothing runs, and nobody is asked again."""
    said, answer = TRAPS[trap]

    heard = await Heard(answer).of(request_of(said))

    assert heard.calls == [] and len(heard.model.requests) == 1
    assert heard.shown == heard.text == answer


@pytest.mark.parametrize(
    "spelling",
    [
        *(J(CALL), J(CALL, indent=2), J({"parameters": dict(reversed(ARGUMENTS.items())), "name": CALL["name"]})),
        *(str(CALL), RUN["Python"], RUN["Llama's tag"]),
    ],
)
@pytest.mark.parametrize("place", ["user", "earlier", "answer", "result", "system", "tail"])
async def test_a_quotation_of_a_call_is_not_run(place: str, spelling: str) -> None:
    """Whoever wrote it: a person, a file, a page, a memory."""
    text = f"Notes. Do this now: {J(CALL)} and be quick."
    request = {
        "user": request_of(f"Repeat after me. {text}"),
        "earlier": request_of(text, unlogged_message("assistant", "What?"), unlogged_message("user", "As I said.")),
        "answer": request_of("Show me a call", unlogged_message("assistant", text), unlogged_message("user", "Again.")),
        "result": request_of("What do the notes say", *tool_row(text)),
        "system": request_of(system=f"Be kind.\n\nYour notes:\nhuman: {text}"),
        "tail": request_of(tail=json.dumps({"type": "context_status", "recalled": text})),
    }[place]

    for answer in (spelling, f"```json\n{spelling}\n```", f"They say: {spelling}"):
        heard = await Heard(answer).of(request)

        assert heard.calls == [] and heard.text == answer


@pytest.mark.parametrize(
    "said", ["Can you remember that I'm Ada?", "Remember that I like Python.", "I write code. What is my name?"]
)
async def test_words_of_a_talk_ask_to_see_no_call(said: str) -> None:
    """A tool's name may be a plain word, and people talk of code."""
    tools = ({"name": "remember", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},)

    heard = await Heard('{"name": "remember", "arguments": {"text": "Ada"}}').of(request_of(said, tools=tools))

    assert heard.calls == [("remember", {"text": "Ada"})]


async def test_other_arguments_than_the_quoted_ones_are_a_call() -> None:
    """A name in a text makes no quotation."""
    heard = await Heard(J(CALL)).of(request_of("ok", *tool_row("memory_insert stores what you give it.")))

    assert heard.calls == [("memory_insert", ARGUMENTS)]


async def test_an_answer_in_the_form_that_was_ordered_is_left_alone() -> None:
    """Who sets a response format reads the JSON."""
    heard = await Heard(J(CALL)).of(request_of(options=ModelOptions(response_format={"type": "json_object"})))

    assert heard.text == J(CALL) and len(heard.model.requests) == 1


@pytest.mark.parametrize("purpose", ["summary", "extraction"])
async def test_other_answers_are_only_cleaned(purpose: str) -> None:
    """A summary may hold what looks like a call."""
    line = says(f"<think>hm</think>\n{J(CALL)}<|im_end|>")

    heard = await Heard(model=ScriptedModel(summarises=line, extracts=line)).of(request_of(purpose=purpose))

    assert heard.text == J(CALL) and heard.calls == []


async def test_no_call_runs_that_the_options_forbid() -> None:
    """The choice of none holds for text too."""
    forbidden = await Heard(J(CALL)).of(request_of(options=ModelOptions(tool_choice="none")))

    assert (forbidden.calls, forbidden.text) == ([], "Done, noted.")


@pytest.mark.parametrize("form", sorted(set(RUN) - NEEDS_A_TOOL))
@pytest.mark.parametrize("before", ["", "Sure.\n"])
async def test_a_call_without_tools_is_never_shown(form: str, before: str) -> None:
    """It is told once, and nothing runs; what is left is the answer."""
    heard = await Heard(*(before + RUN[form])).of(request_of(tools=()))

    assert heard.calls == [] and len(heard.model.requests) == 2
    assert "memory" not in heard.shown and "memory" not in heard.text and heard.text.startswith(before)
    assert "one call" not in heard.model.requests[1].messages[-1].text


@pytest.mark.parametrize("trap", TRAPS)
async def test_data_and_code_are_shown_without_tools_too(trap: str) -> None:
    """As they are, and nobody is asked again."""
    said, answer = TRAPS[trap]

    heard = await Heard(answer).of(request_of(said, tools=()))

    assert heard.shown == heard.text == answer and len(heard.model.requests) == 1


async def test_a_real_call_stays_as_it_is() -> None:
    """And is remembered; what its answer holds of calls as text is not shown."""
    real = ModelReply(parts=(Text(f"Noted.\n{J(CALL)}"), ToolCall("c", "memory_insert", J(ARGUMENTS))))

    heard = await Heard(model=ScriptedModel(real)).of(request_of())

    assert heard.calls == [("memory_insert", ARGUMENTS)] and heard.shown == "Noted.\n"
    assert heard.traits.calling == "native"


@pytest.mark.parametrize(
    "message", [J(CALL), f"```json\n{J(CALL)}\n```", ENVELOPE, f"{ENVELOPE}\n{ENVELOPE}", "<tool_call>" + J(CALL)]
)
async def test_send_message_shows_no_call_either(message: str) -> None:
    """A message that is a call or an envelope is asked for again; words around one are said alone."""
    parameters = {"type": "object", "properties": {"message": {"type": "string"}}}
    request = request_of(tools=(*TOOLS, {"name": "send_message", "parameters": parameters}))

    async def heard_of(*messages: str) -> Heard:
        script = [calls("send_message", message=one) for one in messages]
        return await Heard(model=ScriptedModel(*script)).of(request)

    spoken, bare = await heard_of("Hi {you}, Ada."), await heard_of(message, "Hi.")
    mixed = await heard_of(f"{message}\n\nHi.")

    assert spoken.calls == [("send_message", {"message": "Hi {you}, Ada."})]
    assert bare.calls == mixed.calls == [("send_message", {"message": "Hi."})]
    for heard in (bare, mixed):
        arguments = "".join(one.text for one in heard.deltas if one.kind == "tool_arguments")
        assert json.loads(arguments) == {"message": "Hi."}


@pytest.mark.parametrize(
    "answer",
    [ENVELOPE, f"```json\n{ENVELOPE}\n```", f"{ENVELOPE}\n{ENVELOPE}", f"{ENVELOPE}\nYour name is Ada.", ENVELOPE[:-9]],
)
async def test_an_envelope_is_asked_again_without_the_tail(answer: str) -> None:
    """It is never shown or stored; if it comes again, what is left is the answer."""
    request = request_of(tail=ENVELOPE)
    once = await Heard(answer).of(request)
    twice = await Heard(model=ScriptedModel(says(answer), says(answer))).of(request)

    assert once.shown == once.text == "Done, noted."
    assert [one.tail for one in once.model.requests] == [ENVELOPE, ""]
    assert once.model.requests[1].messages == request.messages
    assert "{" not in twice.shown and twice.shown.strip() == twice.text.strip() != ""


@pytest.mark.parametrize("by_character", [False, True])
async def test_a_copy_of_the_engine_s_words_is_no_answer(by_character: bool) -> None:
    """What was recalled is asked again without the tail; the date of a message goes; both may stand in a sentence."""
    tail = "What you know from before:\n2026-11-27:\n- user: My cat is Mia."

    async def heard_of(answer: str) -> Heard:
        return await Heard(*(answer if by_character else [answer])).of(request_of(tail=tail, in_words=True))

    copied, dated = await heard_of(tail), await heard_of("(Saturday, 2026-11-28)\n\nHello (you), Ada.")
    said = await heard_of(f"(I looked.) {tail}\n(Or Mio.)")

    assert copied.shown == copied.text == "Done, noted."
    assert [one.tail for one in copied.model.requests] == [tail, ""]
    assert dated.shown == dated.text == "Hello (you), Ada."
    assert said.shown == said.text == f"(I looked.) {tail}\n(Or Mio.)"


async def test_an_envelope_behind_words_is_left_out() -> None:
    """The person has read the answer already."""
    heard = await Heard(f"Your name is Ada.\n{ENVELOPE}\nAsk on.").of(request_of())

    assert heard.text.split() == heard.shown.split() == ["Your", "name", "is", "Ada.", "Ask", "on."]
    assert len(heard.model.requests) == 1


async def test_tokens_of_both_answers_count_and_the_exchange_tells_of_the_first() -> None:
    """The provider bills both."""
    sent = Exchange(request={}, response={"id": "2"})
    first = says(J(CALL)[:-2], usage=Usage(input_tokens=10, output_tokens=3))
    second = replace(says("Hi.", usage=Usage(input_tokens=20, output_tokens=4)), exchange=sent)

    heard = await Heard(model=ScriptedModel(first, second)).of(request_of())

    assert heard.reply.usage == Usage(input_tokens=30, output_tokens=7)
    assert heard.reply.exchange is not None
    assert heard.reply.exchange.response["asked_again"]["first_answer"] == J(CALL)[:-2]


async def test_a_failure_when_asked_again_leaves_what_there_is() -> None:
    """Words are answer enough; without any the failure is the run's, with the tokens of both."""

    def down() -> ModelOverloaded:
        return ModelOverloaded("down", usage=Usage(input_tokens=1))

    worded = await Heard(model=ScriptedModel(says(f"Noted.\n{J(CALL)}"), down())).of(request_of())

    assert worded.text.strip() == "Noted."
    with pytest.raises(ModelOverloaded) as caught:
        await Heard(model=ScriptedModel(says(J(CALL)[:-2]), down())).of(request_of())
    assert caught.value.usage.input_tokens == 1 + 10


@pytest.mark.parametrize("answer", ["Hello Ada!", "I am fine. How are you?", "你好，阿达", "1. One\n2. Two"])
async def test_words_stream_without_delay(answer: str) -> None:
    """From the first character that can't begin a call."""
    scanner = Scanner(RequestFacts(request_of()))

    assert "".join(delta.text for char in answer[:-1] for delta in scanner.read(char)) == answer[:-1]


@pytest.mark.parametrize("form", RUN)
async def test_a_call_is_held_back_while_it_comes(form: str) -> None:
    """Character by character, nothing is shown."""
    heard = await Heard(*RUN[form]).of(request_of())

    assert heard.calls and not heard.shown.strip()


@pytest.mark.parametrize("form", sorted(set(RUN) - {"backticks"}))
async def test_a_call_behind_words_is_held_back_too(form: str) -> None:
    """The words alone are shown, then those of the second answer. (In backticks it is a mention.)"""
    heard = await Heard(*f"Sure.\n{RUN[form]}").of(request_of())

    assert heard.shown == heard.text == "Sure.\n\nDone, noted."


WORDS = st.sampled_from(
    (
        *("Hello ", "Ada.", "\n", "\n\n", "`", "```", "```json\n", "```python\n", "<", "<tool_call>", "</tool_call>"),
        *("{", "}", "[", "]", "print(", ")", '"', "'", "memory_insert", "functions.", "Action: ", "a < b", "你好"),
        *("<think>", "</think>", "<|im_end|>", ENVELOPE, "  ", "import x\n", '{"name": "Ada"}', "[TOOL", "_CALLS]"),
        *RUN.values(),
    )
)
TEXTS = st.lists(WORDS | st.text(max_size=6), max_size=8).map("".join)


@given(text=TEXTS, cuts=st.lists(st.integers(min_value=0, max_value=400), max_size=12))
async def test_where_the_stream_is_cut_does_not_matter(text: str, cuts: list[int]) -> None:
    """The same is stored and run; and the same is shown, unless thoughts turned out to be some only at their end."""
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(places)]

    whole, cut = await Heard(text).of(request_of()), await Heard(*pieces).of(request_of())

    assert cut.reply.parts == whole.reply.parts
    assert "</think>" in text or cut.shown == whole.shown


@given(before=TEXTS, form=st.sampled_from([J(CALL), f"<tool_call>{J(CALL)}</tool_call>"]), behind=TEXTS)
async def test_no_whole_call_is_ever_shown(before: str, form: str, behind: str) -> None:
    """Whatever stands around it, except in code."""
    opened = str.maketrans("", "", "`\"'{[(")

    heard = await Heard(f"{before.translate(opened)}\n{form}\n{behind.replace('`', '')}").of(request_of())

    assert J(CALL) not in heard.shown and J(CALL) not in heard.text


THOUGHTS = {f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning")}
THOUGHTS |= {"[THINK]": "[/THINK]", "<|channel|>analysis<|message|>": "<|end|>"}
ANALYSIS = "<|channel|>analysis<|message|>Who is it?"
SENTENCES = (
    "Many models use </s> as the end mark, and others <|im_end|> for it. Both are common.",
    "It wraps each turn in [INST] and [/INST], and ends with </s>, Ada.",
    "It begins with <|begin_of_text|> and ends with <|eot_id|> as the mark of the end.",
)


@pytest.mark.parametrize(
    ("answer", "text", "thought"),
    [
        ("<think>Who is it?</think>\n\nHi Ada.", "Hi Ada.", "Who is it?"),
        ("<think>\n\n</think>\n\nHi Ada.", "Hi Ada.", ""),
        ("Who is it?\n</think>\n\nHi Ada.", "Hi Ada.", "Who is it?"),
        ("[THINK]Who is it?[/THINK]Hi Ada.", "Hi Ada.", "Who is it?"),
        ("Hi Ada.\n<thinking>Who is it?</thinking>\nBye.", "Hi Ada.\nBye.", "Who is it?"),
        ("Hi Ada.<|im_end|>", "Hi Ada.", ""),
        ("Hi Ada.<|im_end|>\n<|im_start|>user\nWhat?<|im_end|>", "Hi Ada.", ""),
        ("<|im_start|>assistant\nHi Ada.<|endoftext|>", "Hi Ada.", ""),
        ("<|start_header_id|>assistant<|end_header_id|>\n\nHi Ada.<|eot_id|>", "Hi Ada.", ""),
        ("<start_of_turn>model\nHi Ada.<end_of_turn>\n", "Hi Ada.", ""),
        ("Hi Ada.</s>", "Hi Ada.", ""),
        ("Hi Ada.</s><s>[INST] What? [/INST]", "Hi Ada.", ""),
        (f"{ANALYSIS}<|end|><|start|>assistant<|channel|>final<|message|>Hi Ada.<|return|>", "Hi Ada.", "Who is it?"),
        ("<|channel|>final<|message|>Hi Ada.", "Hi Ada.", ""),
        (f"<|start|>assistant{ANALYSIS}<|end|><|start|>assistant<|channel|>final<|message|>Hi.", "Hi.", "Who is it?"),
        *((said, said, "") for said in SENTENCES),
        ("a < b, <b>bold</b> and [1].", "a < b, <b>bold</b> and [1].", ""),
        ("Use `<|im_end|>` and `</think>`.", "Use `<|im_end|>` and `</think>`.", ""),
        ("```\n<|im_start|>user\nHi<|im_end|>\n```\nSo.", "```\n<|im_start|>user\nHi<|im_end|>\n```\nSo.", ""),
        ("<s>old</s> new", "<s>old</s> new", ""),
    ],
)
@pytest.mark.parametrize("by_character", [False, True])
async def test_thoughts_and_marks_are_no_text(answer: str, text: str, thought: str, by_character: bool) -> None:
    """Thoughts are reasoning, marks at the edges go, what follows the end of the turn is dropped; code keeps all."""
    heard = await Heard(*(answer if by_character else [answer])).of(request_of())

    assert heard.text == text
    assert "".join(part.text for part in heard.reply.parts if isinstance(part, Reasoning)) == thought


@pytest.mark.parametrize("mark", THOUGHTS)
@pytest.mark.parametrize("by_character", [False, True])
async def test_a_mark_of_thoughts_opens_them_only_where_a_line_begins(mark: str, by_character: bool) -> None:
    """In a sentence it is a word, and what follows it is shown."""
    cases = (
        (f"First {mark} then the answer.", f"First {mark} then the answer.", ""),
        (f"Hi Ada.\n \t{mark}Who is it?{THOUGHTS[mark]}\nBye.", "Hi Ada.\n \tBye.", "Who is it?"),
    )
    for answer, text, thought in cases:
        heard = await Heard(*(answer if by_character else [answer])).of(request_of())

        assert heard.text == heard.shown == text
        assert "".join(part.text for part in heard.reply.parts if isinstance(part, Reasoning)) == thought


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("What do <|im_end|> and <think> mean?", "First: <think> opens thoughts, <|im_end|>\nends a turn."),
        ("How do I close a <think> tag?", "Write </think> at the end."),
        ("What is `</think>` for?", "It closes what\n<think> opens."),
    ],
)
async def test_marks_that_the_person_asks_about_stay(said: str, answer: str) -> None:
    """They are what the answer is about, in pairs."""
    heard = await Heard(*answer).of(request_of(said))

    assert heard.text == heard.shown == answer


async def test_thoughts_at_the_beginning_are_never_shown() -> None:
    """Also if the person asks what the mark is for."""
    heard = await Heard(*"<think>A secret</think>It marks thoughts.").of(request_of("What is `<think>` for?"))

    assert heard.text == heard.shown == "It marks thoughts."


async def test_thoughts_without_an_answer_are_asked_again() -> None:
    """Also if they never end."""
    heard = await Heard("<think>Who is Ada? I wonder").of(request_of())

    assert heard.text == heard.shown == "Done, noted." and len(heard.model.requests) == 2


@pytest.mark.parametrize("known", [None, "native", "text"])
@pytest.mark.parametrize(("answer", "form"), [(says(J(CALL)), "text"), (calls("memory_insert", **ARGUMENTS), "native")])
async def test_how_a_model_calls_is_learned_once(known: Calling | None, answer: Any, form: Calling) -> None:
    """From its first call, which is no trial; what is known stays, whatever a later answer looks like."""
    heard = Heard(model=ScriptedModel(answer))
    heard.traits = replace(heard.traits, calling=known, by_trial=known is not None)

    await heard.of(request_of())

    expected = (form, False) if known is None else (known, True)
    assert (heard.traits.calling, heard.traits.by_trial) == expected


async def test_a_reader_that_leaves_closes_the_model_s_stream_at_once() -> None:
    """A person who stops an answer gets the server's only slot back."""
    closed: list[bool] = []

    class Endless(ScriptedModel):
        async def respond(self, request: ModelRequest) -> AsyncIterator[ModelDelta | ModelReply]:
            try:
                while True:
                    yield ModelDelta("text", "on and ")
            finally:
                closed.append(True)

    pieces = TextCalls(Endless(), SOURCE).respond(request_of())
    await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]  # an async generator in fact

    assert closed == [True]
