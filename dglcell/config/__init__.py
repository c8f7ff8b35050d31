"""What experiments say, and how their files are read."""
