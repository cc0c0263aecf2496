"""The corpus of bad input: what the project promises to refuse, or to survive with right results."""
