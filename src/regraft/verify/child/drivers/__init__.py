"""Ways to bring the definitions of a file to life."""
