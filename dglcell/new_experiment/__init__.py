"""A first experiment of one's own, from a table and a cell."""
