"""Agents, and any model with memory, behind OpenAI's API."""
