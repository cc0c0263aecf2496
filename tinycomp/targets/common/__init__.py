"""What targets on CPUs share: spellings of activations, checks of operands, the inside of composites."""
