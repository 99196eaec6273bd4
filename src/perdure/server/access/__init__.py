"""Who may do what on the server: keys of requests, scopes of routes, limits, and what is noted in the audit log."""
