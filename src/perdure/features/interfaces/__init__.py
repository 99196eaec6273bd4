"""Interfaces that show what an agent says and does: in a terminal, by callbacks, as a stream, in Telegram."""
