"""The pages of facts."""
