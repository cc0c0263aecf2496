"""Devices: hardware with memories, a queue of commands and faults, and plans whose regions run there."""
