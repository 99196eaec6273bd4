"""Vectors in memory: one matrix per scope, filtered and searched."""
