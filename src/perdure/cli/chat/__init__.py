"""The chat: its session, its commands, its terminal."""
