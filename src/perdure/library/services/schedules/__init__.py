"""Schedules, and events that wake agents."""
