"""Agents: making and changing them, and what their memory does by itself."""
