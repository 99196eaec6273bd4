"""Models with an API of their own (Anthropic, Gemini, OpenAI responses, Bedrock, ...), through pydantic-ai's direct
layer, without its agents.

The library costs more than a second to import, so it is imported at the first request and nowhere before.
"""
