"""Measuring speed, apart from tests."""
