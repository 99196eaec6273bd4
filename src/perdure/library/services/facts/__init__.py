"""The services of facts: what is known, from what, and what people change about it."""
