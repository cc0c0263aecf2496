"""The corpus of bad input: every class of failure that the project promises to refuse, or to survive with right results."""
