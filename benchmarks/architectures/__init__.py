"""The networks of the corpus with seeded random weights, as PyTorch modules or node by node; a family per file."""
