"""Generate text with a compiled language model, token by token."""

from tinycomp.generation.decoder import Decoder
from tinycomp.generation.generate import generate, perplexity
from tinycomp.generation.sampling import Sampler

__all__ = ["Decoder", "Sampler", "generate", "perplexity"]
