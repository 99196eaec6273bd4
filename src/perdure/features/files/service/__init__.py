"""What programs, the server and the command line do with folders and files."""
