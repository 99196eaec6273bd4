"""Agents that are woken by a schedule or an event, not by a message of a person."""
