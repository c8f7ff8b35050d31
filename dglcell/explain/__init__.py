"""Say what a predicted change comes from: subsets of deletions, and sources in the model's own forward."""
