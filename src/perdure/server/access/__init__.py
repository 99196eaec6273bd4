"""Who a request of the server is for, signing in, and which addresses clients may name."""
