"""Values and ports. No input or output happens here, and nothing else of ours is imported."""
