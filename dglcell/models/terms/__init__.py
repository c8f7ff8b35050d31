"""Define terms, of which models are lists: each owns its keys, what it fits before training, its state and forward."""
