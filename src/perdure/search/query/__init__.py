"""What a query asks: its text, its dates, its names."""
