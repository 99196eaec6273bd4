"""Tools as values: what a tool is, the schema of its arguments, the rules that order its calls."""
