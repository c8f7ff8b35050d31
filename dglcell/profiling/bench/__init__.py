"""The benchmark: this package against the methods it replaces, on one cell graph, with the same weights and strains."""
