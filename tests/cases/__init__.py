"""The table of operators under test, a file per family, and the ways in which each row is met."""
