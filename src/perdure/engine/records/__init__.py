"""What runs store: requests, rows, leases."""
