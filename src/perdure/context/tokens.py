"""Token counts without a tokenizer: an upper estimate by script."""

from __future__ import annotations

__all__ = ["MESSAGE_OVERHEAD_TOKENS", "ScriptTokenCounter"]

MESSAGE_OVERHEAD_TOKENS = 6
"""What a provider adds around each message: role, separators, and the like."""


class ScriptTokenCounter:
    """`TokenCounter` by bytes: 0.4 tokens for an ASCII character, 0.5 for each byte of another.

    English prose takes about 0.22 tokens a character, JSON and code up to 0.4; a Chinese character takes three bytes
    and 0.7 to 1.5 tokens, an emoji four bytes and up to two. So the estimate is on the safe side for what people write.
    """

    def count(self, text: str) -> int:
        if text.isascii():
            return -(-len(text) * 2 // 5)
        ascii_chars = len(text.encode("ascii", "ignore"))
        other_bytes = len(text.encode("utf-8", "surrogatepass")) - ascii_chars
        return -(-(ascii_chars * 4 + other_bytes * 5) // 10)
