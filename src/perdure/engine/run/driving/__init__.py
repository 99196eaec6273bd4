"""What drives runs of a process: what its runner does with them, how it ends, and the views that it keeps."""
