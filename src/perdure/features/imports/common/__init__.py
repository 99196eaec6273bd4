"""What imports from files and from servers share."""
