"""Fetch files that others publish, check them and make tables of them."""
