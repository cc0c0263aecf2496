"""llama.cpp with a model of random weights in 4 bits; its interpreter needs numpy, ``gguf`` and ``llama_cpp`` alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.worker import pin

BLOCK = 32
"""Weights that share a scale in Q4_0."""
BLOCK_BYTES = 2 + BLOCK // 2


def write(file: Path, sizes: Mapping[str, int]) -> None:
    """Write a LLaMA of random weights as GGUF, matrices in Q4_0, gains in float32, without a vocabulary.

    Args:
        file: Where to.
        sizes: ``layers``, ``width``, ``heads``, ``kv_heads``, ``hidden``, ``vocabulary`` and ``positions``.
    """
    import gguf

    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(file, "llama")
    width, hidden = sizes["width"], sizes["hidden"]
    head = width // sizes["heads"]
    writer.add_context_length(sizes["positions"])
    writer.add_embedding_length(width)
    writer.add_block_count(sizes["layers"])
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(sizes["heads"])
    writer.add_head_count_kv(sizes["kv_heads"])
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(sizes["vocabulary"])
    writer.add_tokenizer_model("no_vocab")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)

    def matrix(name: str, columns: int, depth: int) -> None:
        blocks = rng.integers(0, 256, (columns, depth // BLOCK, BLOCK_BYTES), np.uint8)
        scales = np.full((columns, depth // BLOCK), 0.4 * depth**-0.5, np.float16)
        blocks[..., :2] = scales.view(np.uint8).reshape(*scales.shape, 2)
        writer.add_tensor(name, blocks.reshape(columns, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def gain(name: str) -> None:
        writer.add_tensor(name, np.ones(width, np.float32))

    matrix("token_embd.weight", sizes["vocabulary"], width)
    for layer in range(sizes["layers"]):
        gain(f"blk.{layer}.attn_norm.weight")
        gain(f"blk.{layer}.ffn_norm.weight")
        shared = sizes["kv_heads"] * head
        for name, columns in (("q", width), ("k", shared), ("v", shared), ("output", width)):
            matrix(f"blk.{layer}.attn_{name}.weight", columns, width)
        for name, columns, depth in (("gate", hidden, width), ("up", hidden, width), ("down", width, hidden)):
            matrix(f"blk.{layer}.ffn_{name}.weight", columns, depth)
    gain("output_norm.weight")
    matrix("output.weight", sizes["vocabulary"], width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """A model in llama.cpp's C interface, in a process of its own, with its usual settings but for the threads.

    Args:
        file: The GGUF file, written now if it is not there.
        sizes: See :func:`write`.
        threads: Of the engine.
    """

    def __init__(self, file: Path, sizes: Mapping[str, int], threads: int) -> None:
        pin(threads)
        if not file.exists():
            part = file.with_suffix(".part")
            write(part, sizes)
            part.replace(file)
        import llama_cpp

        self._api = llama_cpp
        llama_cpp.llama_backend_init()
        self._vocabulary = sizes["vocabulary"]
        self._model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load {file}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = settings.n_ubatch = sizes["positions"]
        settings.n_threads = settings.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        if not self._context:
            raise RuntimeError("llama.cpp makes no context")
        self._batch = llama_cpp.llama_batch_init(sizes["positions"], 0, 1)

    def generate(self, tokens: int) -> list[float]:
        """The seconds of every step of one token, from an empty cache on."""
        self._clear()
        return [self._step(position, 1) for position in range(tokens)]

    def prefill(self, tokens: int, times: int) -> list[float]:
        """The seconds of runs on many tokens at once, with logits for all of them."""
        samples = []
        for _ in range(times):
            self._clear()
            samples.append(self._step(0, tokens))
        return samples

    def _clear(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)

    def _step(self, first: int, count: int) -> float:
        batch = self._batch
        batch.n_tokens = count
        for i in range(count):
            batch.token[i] = (first + i) * 7919 % self._vocabulary
            batch.pos[i] = first + i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        start = time.perf_counter()
        if self._api.llama_decode(self._context, batch):
            raise RuntimeError("llama.cpp fails to decode")
        self._api.llama_get_logits(self._context)[0]  # waits for the results
        return time.perf_counter() - start
