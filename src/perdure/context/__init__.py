"""What the model will see: pure functions of values, which never call memory."""
