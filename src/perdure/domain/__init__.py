"""The tiers of memory: units of work over a transaction, and pure ranking."""
