"""Files that others publish: how they are fetched, checked and made into tables."""
