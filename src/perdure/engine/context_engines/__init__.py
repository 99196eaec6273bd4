"""Context engines at work: which there are, when they are called, and what happens when one fails."""
