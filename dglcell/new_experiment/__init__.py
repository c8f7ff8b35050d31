"""Write a user's first experiment, from a table and a cell."""
