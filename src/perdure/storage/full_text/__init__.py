"""Full-text search: the index, its candidates, and making it anew."""
