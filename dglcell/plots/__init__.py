"""Draw pictures of results."""
