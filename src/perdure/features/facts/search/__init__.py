"""The search of facts, and what they add to the search of messages and to recall."""
