"""A request: assembled from its recipe, rebuilt, explained and compared."""
