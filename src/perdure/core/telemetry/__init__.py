"""What the program reports of its work, for metrics and traces: values and the port."""
