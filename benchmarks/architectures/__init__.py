"""The networks of the corpus as PyTorch modules with seeded random weights; each file holds one family."""
