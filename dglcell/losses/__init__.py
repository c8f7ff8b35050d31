"""Compute losses over strains of which some labels are missing."""
