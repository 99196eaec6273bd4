"""Models of one's own: llama.cpp in a process that Perdure starts, watches and stops."""
