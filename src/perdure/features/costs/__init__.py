"""What fills a context window, what a model was sent, and what a conversation costs."""
