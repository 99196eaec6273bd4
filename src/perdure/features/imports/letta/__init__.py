"""A running server of Letta's API, copied through that API."""
