"""The nouns of the command line: the verbs of each with their arguments. `root.NOUNS` lists them."""
