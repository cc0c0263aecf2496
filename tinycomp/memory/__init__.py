"""Memory: budgets of runs, placement of buffers and constants, and mapped files."""
