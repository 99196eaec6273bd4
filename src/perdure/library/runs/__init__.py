"""Runs, their steps, replays and batches."""
