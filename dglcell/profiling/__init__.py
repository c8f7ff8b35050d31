"""Measure the speed of training, apart from tests."""
