"""Models behind the OpenAI chat API: OpenAI, Ollama, vLLM, LM Studio, OpenRouter, or any address that speaks it."""
