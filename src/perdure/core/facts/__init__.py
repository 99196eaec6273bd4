"""Facts: what was said, as statements about entities, with the times at which they were true and believed."""
