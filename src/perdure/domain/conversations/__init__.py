"""Conversations: what is out of view, opened and searched; imported history."""
