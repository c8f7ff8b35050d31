"""Time the package. Benchmarks run from a clone and are no part of the wheel."""
