"""Choose what ``auto`` stands for: kernels that proved right, and settings found once for a machine and a cell."""
