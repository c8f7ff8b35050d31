"""Hostile inputs through the real command line: each is refused in one message, and nothing is written."""
