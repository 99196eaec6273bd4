"""What fades: facts and passages that nothing has used for long."""
