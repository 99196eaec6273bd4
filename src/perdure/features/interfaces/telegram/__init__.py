"""A bot for Telegram: people talk to one agent, each chat in a conversation of its own."""
