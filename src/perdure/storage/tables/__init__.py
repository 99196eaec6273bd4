"""The verbs of one transaction, one file per noun, with the SQL beside each method."""
