"""Everything that times: run from a clone, not part of the wheel."""
