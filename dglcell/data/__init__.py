"""Hold strains from source to batch: sources, stores, data sets, splits and batches."""
