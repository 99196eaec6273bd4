"""What the program says, in two languages. `{}` in a phrase is filled with a person's text, never formatted again."""

from __future__ import annotations

from typing import Final

from perdure.providers.extractive.sentences import Language

NOTICE: Final[dict[Language, str]] = {
    "en": (
        "(I am perdure/extractive: no language model, but a small program that notes and finds what you tell me."
        " To think with a language model, set OPENAI_API_KEY or another provider's key, or start Ollama;"
        " `perdure doctor` says what is found, /model changes the model.)"
    ),
    "zh": (
        "（我是 perdure/extractive：不是语言模型，只是一个记下并查找你所说内容的小程序。"
        "若要用语言模型来思考，请设置 OPENAI_API_KEY 或其他提供商的密钥，或启动 Ollama；"
        "`perdure doctor` 会说明找到了什么，/model 可更换模型。）"
    ),
}

_PHRASES: Final[dict[str, tuple[str, str]]] = {
    "noted": ("Noted: {0}.", "记下了：{0}。"),
    "known": ("I have that already: {0}.", "这个我已经记着：{0}。"),
    "not noted": ("I could not note {0}: {1}", "没能记下 {0}：{1}"),
    "no tool": ("there is no block 'human', or no tool to edit it.", "没有 human 记忆块，或没有编辑它的工具。"),
    "no answer": ("the tool gave no result.", "工具没有返回结果。"),
    "left over": ("it was left over, tell me again.", "这次没来得及，请再说一遍。"),
    "user": ('On {0} you said: "{1}"', "你在 {0} 说过：“{1}”"),
    "assistant": ('On {0} I said: "{1}"', "我在 {0} 说过：“{1}”"),
    "archive": ('From my archive ({0}): "{1}"', "我的档案（{0}）：“{1}”"),
    "notes": ('From my notes: "{0}"', "我的笔记：“{0}”"),
    "all notes": ("I noted: {0}.", "我记着：{0}。"),
    "nothing": ('I looked for "{0}" and found nothing.', "我查了“{0}”，没有找到。"),
    "search failed": ("The search with {0} failed: {1}", "用 {0} 查找失败：{1}"),
    "hello": (
        "Hello! Tell me about yourself, or ask me what you told me.",
        "你好！可以告诉我你的事，也可以问我你说过什么。",
    ),
    "thanks": ("You're welcome.", "不客气。"),
    "hello name": ("Hello, {0}!", "你好，{0}！"),
    "nothing to note": (
        'I read that, but found no fact to note. I understand sentences such as "I live in Turin" or "Remember that'
        ' the key is under the mat", and questions about what you told me.',
        "我看到了，但没有可以记的内容。我能听懂“我住在都灵”“记住钥匙在垫子下面”这样的话，以及关于这些内容的问题。",
    ),
}


def say(phrase: str, language: Language, *values: object) -> str:
    """The phrase of this name in this language, with its values filled in."""
    return _PHRASES[phrase][0 if language == "en" else 1].format(*values)
