"""Messages that are sent to agents by themselves, and events from outside."""
