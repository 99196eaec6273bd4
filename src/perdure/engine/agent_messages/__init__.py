"""Agents that write to agents: the tools, and what keeps agents from waiting for one another for ever."""
