"""The tables of facts: graphs, entities, facts, episodes and communities."""
