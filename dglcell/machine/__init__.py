"""Describe this machine: its device, memory, processor, and the processes that share it."""
