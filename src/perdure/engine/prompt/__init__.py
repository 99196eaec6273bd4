"""What a request begins with and ends on: prefixes, system messages, what was recalled."""
