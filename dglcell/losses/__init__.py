"""Losses over strains of which some labels are missing."""
