"""Who a request of the server is for, and signing in."""
