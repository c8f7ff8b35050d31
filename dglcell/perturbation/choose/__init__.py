"""What ``auto`` takes: kernels that proved themselves, and what was found once for a machine and a cell graph."""
