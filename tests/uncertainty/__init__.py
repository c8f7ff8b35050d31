"""Tests of intervals and calibrated probabilities."""
