"""Answers that are calls, answers that only look like calls, and a model that gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from perdure.core.messages import Message, Text, ToolCall, ToolResult, unlogged_message
from perdure.core.models import ModelDelta, ModelReply, ModelRequest, ModelTraits
from perdure.providers.provider import Endpoint, ModelSource
from perdure.providers.text_calls.model import TextCalls
from perdure.testing import ScriptedModel, says

ARGUMENTS = {"label": "human", "new_string": "Name: Ada"}
CALL = {"name": "memory_insert", "arguments": ARGUMENTS}
SAID = "My name is Ada."
J = json.dumps

TOOLS: tuple[Mapping[str, Any], ...] = (
    {
        "name": "memory_insert",
        "description": "Insert text as new lines of a memory block.",
        "parameters": {
            "type": "object",
            "properties": {
                "label": {"type": "string"},
                "new_string": {"type": "string"},
                "insert_line": {"type": "integer"},
            },
            "required": ["label", "new_string"],
            "additionalProperties": False,
        },
    },
    {
        "name": "conversation_search",
        "description": "Search the history.",
        "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    },
)

RUN: Mapping[str, str] = {
    "a fence": f"```json\n{J(CALL, indent=2)}\n```",
    "a tag": f"<tool_call>\n{J(CALL)}\n</tool_call>",
    "a tag that is not closed": f"<tool_call>\n{J(CALL)}",
    "a fence in a tag": f"<tool_call>\n```json\n{J(CALL)}\n```\n</tool_call>",
    "bare": J(CALL),
    "a list": J([CALL]),
    "OpenAI's objects": J({"tool_calls": [{"type": "function", "function": {**CALL, "arguments": J(ARGUMENTS)}}]}),
    "one of OpenAI's objects": J({"type": "function", "function": CALL}),
    "parameters": J({"name": "memory_insert", "parameters": ARGUMENTS}),
    "arguments as a text": J({"name": "memory_insert", "arguments": J(ARGUMENTS)}),
    "arguments beside the name": J({"tool": "memory_insert", **ARGUMENTS}),
    "the name as a key": J({"memory_insert": ARGUMENTS}),
    "a name with a prefix": J({"name": "functions.memory_insert", "arguments": ARGUMENTS}),
    "action and its input": J({"action": "memory_insert", "action_input": ARGUMENTS}),
    "Python": 'memory_insert(label="human", new_string="Name: Ada")',
    "Python by position": "memory_insert('human', 'Name: Ada')",
    "Python in a list": '[memory_insert(label="human", new_string="Name: Ada")]',
    "Python in a fence": '```tool_code\nmemory_insert(label="human", new_string="Name: Ada")\n```',
    "Python that prints": '```tool_code\nprint(default_api.memory_insert(label="human", new_string="Name: Ada"))\n```',
    "a Python dict": str(CALL),
    "doubled braces": "{" + J(CALL) + "}",
    "a line break in a text": J(CALL).replace("Name: Ada", "Name:\nAda"),
    "Mistral's mark": f"[TOOL_CALLS]{J([CALL])}",
    "Mistral's newer mark": f"[TOOL_CALLS]memory_insert[ARGS]{J(ARGUMENTS)}",
    "Llama's mark": "<|python_tag|>" + J({"name": "memory_insert", "parameters": ARGUMENTS}),
    "Llama's tag": f"<function=memory_insert>{J(ARGUMENTS)}</function>",
    "Qwen Coder's tags": "<tool_call>\n<function=memory_insert>\n<parameter=label>\nhuman\n</parameter>\n"
    "<parameter=new_string>\nName: Ada\n</parameter>\n</function>\n</tool_call>",
    "Anthropic's tags": '<function_calls>\n<invoke name="memory_insert">\n<parameter name="label">human</parameter>\n'
    '<parameter name="new_string">Name: Ada</parameter>\n</invoke>\n</function_calls>',
    "a command among thoughts": J({"thoughts": "hm", "command": {"name": "memory_insert", "args": ARGUMENTS}}),
    "a tool and its input": f"Tool: memory_insert\nInput: {J(ARGUMENTS)}",
    "a comma too many": J(CALL)[:-2] + ",}}",
    "GLM's tags": "<tool_call>memory_insert\n<arg_key>label</arg_key>\n<arg_value>human</arg_value>\n"
    "<arg_key>new_string</arg_key>\n<arg_value>Name: Ada</arg_value>\n</tool_call>",
    "DeepSeek's marks": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>memory_insert\n"
    f"```json\n{J(ARGUMENTS)}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "Harmony's header": "<|channel|>commentary to=functions.memory_insert <|constrain|>json<|message|>"
    f"{J(ARGUMENTS)}<|call|>",
    "action in words": f"Action: memory_insert\nAction Input: {J(ARGUMENTS)}",
    "the name before an object": f"memory_insert\n{J(ARGUMENTS)}",
    "backticks": f"`{J(CALL)}`",
    "thoughts before": f"<think>\nI keep that.\n</think>\n\n{J(CALL)}",
    "a talk with itself behind": f"{J(CALL)}<|im_end|>\n<|im_start|>user\nThanks",
}
"""What the answer is -> an answer that is one call, and is run."""

TOLD: Mapping[str, tuple[str, str]] = {
    "prose before": (f"Sure! I'll store that.\n\n{J(CALL)}", "Text stood around"),
    "prose behind": (f"{J(CALL)}\n\nI have stored it.", "Text stood around"),
    "prose before a fence": (f"Let me note that:\n```json\n{J(CALL)}\n```\nDone!", "Text stood around"),
    "prose before Python": ('I keep it.\nmemory_insert(label="human", new_string="Name: Ada")', "Text stood around"),
    "a missing brace": (f"```json\n{J(CALL)[:-1]}\n```", "can't be read"),
    "a missing brace without a fence": (J(CALL)[:-2], "can't be read"),
    "a missing quote": (J(CALL).replace('Ada"', "Ada"), "can't be read"),
    "Python that breaks off": ('memory_insert(label="human", new_string="Na', "can't be read"),
    "Python with colons": ("memory_insert(label: 'human', new_string: 'Ada')", "can't be read"),
    "other code around": ('```python\nmemory_insert("human", "Name: Ada")\nprint("ok")\n```', "can't be read"),
    "a tag without a call": ("<tool_call>\nHello Ada.", "can't be read"),
    "an unknown tool": (J({**CALL, "name": "save_memory"}), "no tool 'save_memory'"),
    "a name that is none": (J({**CALL, "name": "Ada Lovelace"}), "no tool 'Ada Lovelace'"),
    "an unknown tool in a fence": (f"```json\n{J({**CALL, 'name': 'save_memory'})}\n```", "no tool 'save_memory'"),
    "an unknown tool in Python": ('```tool_code\nsave_memory(text="Ada")\n```', "no tool 'save_memory'"),
    "a missing argument": (J({**CALL, "arguments": {"label": "human"}}), "missing 'new_string'"),
    "an unknown argument": (J({**CALL, "arguments": {"label": "human", "content": "Ada"}}), "content"),
    "one good, one unknown": (J([CALL, {**CALL, "name": "save_memory"}]), "no tool 'save_memory'"),
}
"""What the answer is -> (an answer that looks like a call and is not run, what the model is told)."""

CODE = 'def main() {\n  call({"name": 1});\n}'
TRAPS: Mapping[str, tuple[str, str]] = {
    "data with a name": ("Give me my card as JSON.", '{"name": "Ada", "age": 36}'),
    "data with a name, in a fence": ("Mach JSON daraus: Ada, 36", '```json\n{"name": "Ada", "age": 36}\n```'),
    "data with a name and more": ("Profile, please.", '{"name": "Ada", "role": "nurse", "arguments": "none"}'),
    "a list of data": ("My dogs as data?", '[{"name": "Biscuit"}, {"name": "Rex"}]'),
    "a service with parameters": ("Write a config.", '{"name": "web", "parameters": {"port": 80}}'),
    "a schema": ("给我这个工具的 JSON schema", J({"name": "get_weather", "parameters": {"type": "object"}})),
    "a schema of a tool": (SAID, J({"name": "greet", "parameters": {"type": "object", "properties": {}}})),
    "a call that was asked for as JSON": ("Show me a memory_insert call as JSON.", J(CALL)),
    "the same in German": ("Zeig mir, wie ein Aufruf von memory_insert aussieht.", f"```json\n{J(CALL)}\n```"),
    "the same in Chinese": ("memory_insert 怎么调用？", f"```json\n{J(CALL)}\n```"),
    "the same in Spanish": ("Dame un ejemplo de memory_insert", 'memory_insert("human", "Name: Ada")'),
    "the same as a question": ("What does memory_insert look like in Python?", f"```python\n{RUN['Python']}\n```"),
    "code that was asked for": ("Write the code that stores my name.", f"```python\n{RUN['Python']}\n```"),
    "a script": ("Write a Python script that does it", f"```python\n{RUN['Python by position']}\n```"),
    "a line of Python": ("How would I call that in Python?", RUN["Python"]),
    "code in German": ("Schreib mir den Code dafür", RUN["Python in a list"]),
    "code in French": ("Écris un script pour cela", f"```python\n{RUN['Python']}\n```"),
    "code in Chinese": ("写一段代码记住我的名字", f"```python\n{RUN['Python']}\n```"),
    "code in Japanese": ("名前を保存するコードを書いて", f"```python\n{RUN['Python']}\n```"),
    "code that was not ordered": ("Is there a function for it?", RUN["Python"]),
    "an object with a tool's name": ("I'd like a JSON object with name memory_insert", J(CALL)),
    "JSON in Chinese": ("打印一个JSON：名字和参数", J(CALL)),
    "a config": ("I need a config with name and arguments for my launcher, please.", J(CALL)),
    "an example in German": ("Schreib mir bitte ein Beispiel für einen Werkzeugaufruf", f"```json\n{J(CALL)}\n```"),
    "a question in Italian": ("Come si scrive la chiamata?", J(CALL)),
    "an explanation with an example": (
        "How does a tool call work?",
        f"A tool call is JSON:\n\n```json\n{J(CALL)}\n```\n\nThe server runs it.",
    ),
    "an unknown tool in an explanation": (
        "What is function calling?",
        f"A model answers with an object:\n```json\n{J({'name': 'get_weather', 'arguments': {'city': 'Graz'}})}\n```",
    ),
    "a long text with an example": (
        "Tell me about agents.",
        "Agents act. " * 40 + f"\n\n{J({'name': 'get_weather', 'arguments': {}})}\n\nSo they do.",
    ),
    "code that calls": (
        "Write a test.",
        '```python\nfrom tools import memory_insert\n\nmemory_insert("human", "x")\n```',
    ),
    "code with a result": (SAID, '```python\nresult = memory_insert(label="human", new_string="x")\n```'),
    "a definition": (SAID, "```python\ndef memory_insert(label, new_string):\n    return label\n```"),
    "a mention in a sentence": (SAID, 'I would use memory_insert(label="human", new_string="x") for that.'),
    "a mention at its beginning": (SAID, 'memory_insert(label="human") is what keeps it, Ada.'),
    "a mention in backticks": (SAID, f"My calls look like `{J(CALL)}`, Ada."),
    "a name at the beginning": (SAID, "memory_insert is one of my tools, Ada."),
    "a call of other arguments": (SAID, "memory_insert(label=variable)"),
    "braces": (SAID, f"In C:\n```c\n{CODE}\n```\nThat is it {{really}}."),
    "brackets": (SAID, "See [the page](https://example.org) [1] and <b>that</b>, a < b."),
    "JSON-RPC": ("JSON of an MCP request?", J({"jsonrpc": "2.0", "method": "tools/call", "params": CALL})),
    "JSON lines": ("Log lines, JSON.", '{"type": "info", "name": "boot"}\n{"type": "info", "name": "run"}'),
    "a type that is data": ("An event in JSON", '{"type": "event", "name": "launch"}'),
    "YAML": ("The call in YAML", "name: memory_insert\narguments:\n  label: human\n  new_string: x"),
    "tags of a page": ("A page with tools", "<tools>\n  <tool>hammer</tool>\n</tools>"),
    "a tag in a sentence": (SAID, "Some models write <tool_call> and </tool_call>, Ada."),
    "a label": (SAID, "Action: tell people your name, Ada.\nTool: a smile."),
    "mathematics": (SAID, "f(x) = {x | x > 0}, [0, 1], {1, 2}"),
}
"""What the answer is -> (what the person said, an answer in which nothing is run and all is shown)."""


def tool_row(text: str) -> tuple[Message, ...]:
    """A call of a tool and its result."""
    asked = replace(unlogged_message("assistant", ""), parts=(ToolCall("c1", "open_files", "{}"),))
    return asked, replace(unlogged_message("tool", ""), parts=(ToolResult("c1", "open_files", text),))


def request_of(said: str = SAID, *before: Message, **fields: Any) -> ModelRequest:
    """A request of a person who said this last, behind these messages."""
    messages = (unlogged_message("user", said), *before)
    return ModelRequest(**{"model": "m", "system": "You are kind.", "messages": messages, "tools": TOOLS, **fields})


class Pieces(ScriptedModel):
    """A model whose text streams in these pieces."""

    def __init__(self, *pieces: str) -> None:
        super().__init__(says("".join(pieces)), otherwise=says("Done, noted."))
        self.pieces: Sequence[str] = pieces

    async def respond(self, request: ModelRequest):  # type: ignore[no-untyped-def]
        is_first = not self.requests
        async for piece in super().respond(request):
            if not is_first or isinstance(piece, ModelReply):
                if is_first:
                    for text in self.pieces:
                        yield ModelDelta("text", text)
                yield piece


SOURCE = ModelSource(endpoint=Endpoint(provider="vllm", base_url="http://127.0.0.1:8000/v1"), name="small")


class Heard:
    """What comes of one request to a model that is read by `TextCalls`."""

    def __init__(self, *pieces: str, model: ScriptedModel | None = None) -> None:
        self.model = model or Pieces(*pieces)
        self.traits = ModelTraits(plain=True)
        self.deltas: list[ModelDelta] = []
        self.before: list[str] = []
        """The text that was shown when each piece of the first answer had come."""
        self.reply = ModelReply(parts=())

    def learn(self, **traits: Any) -> None:
        self.traits = replace(self.traits, **traits)

    async def of(self, request: ModelRequest) -> Heard:
        model = TextCalls(self.model, replace(SOURCE, traits=lambda: self.traits, learn=self.learn))
        async for piece in model.respond(request):
            if isinstance(piece, ModelReply):
                self.reply = piece
            elif isinstance(piece, ModelDelta):
                self.deltas.append(piece)
        return self

    @property
    def shown(self) -> str:
        """The text that a reader saw."""
        return "".join(delta.text for delta in self.deltas if delta.kind == "text")

    @property
    def text(self) -> str:
        """The text that is stored."""
        return "".join(part.text for part in self.reply.parts if isinstance(part, Text))

    @property
    def calls(self) -> list[tuple[str, Any]]:
        """The calls that are run."""
        return [(one.name, json.loads(one.arguments)) for one in self.reply.parts if isinstance(one, ToolCall)]
