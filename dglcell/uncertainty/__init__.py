"""Say how far a prediction may be off: intervals with a stated coverage, and calibrated probabilities of classes."""
