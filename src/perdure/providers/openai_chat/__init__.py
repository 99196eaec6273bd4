"""Models behind the OpenAI chat API: OpenAI, Ollama, vLLM, LM Studio, OpenRouter, or any address that speaks it."""

from __future__ import annotations

from perdure.providers.openai_chat.endpoint import Connections
from perdure.providers.openai_chat.model import OpenAIChat, Silence

__all__ = ["Connections", "OpenAIChat", "Silence"]
