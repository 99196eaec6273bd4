"""What a conversation costs: a ledger of its requests and summaries, and its plot."""
