"""Conversations as a whole: importing, resetting, deleting."""
