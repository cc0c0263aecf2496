"""Decoders of transformers, as PyTorch's dynamo exporter writes them: one region, and the logits of PyTorch."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinycomp
from tinycomp.generation import Decoder

torch = pytest.importorskip("torch", reason="decoders are exported with PyTorch")
transformers = pytest.importorskip("transformers", reason="decoders are those of transformers")
pytest.importorskip("onnxscript", reason="the dynamo exporter needs onnxscript")

SIZES: dict[str, Any] = {
    "vocab_size": 67, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128,
}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "Llama": {},
    "Mistral": {"sliding_window": 8},
    "Qwen2": {},
    "Qwen3": {"head_dim": 16},
    "Phi3": ENDS,
    "Gemma": {"head_dim": 16},
    "Gemma2": {"head_dim": 16, "sliding_window": 8},
    "Gemma3": {"head_dim": 16, "sliding_window": 8},
}
TOKENS = [3, 5, 7, 11, 13, 17, *(7 * i % 67 for i in range(20))]
PIECES = (5, 1, 1, 1, 12, 1, 5)
"""How many tokens the runs take, one after another."""


def build(family: str) -> Any:
    """Return a model with random weights, none of which starts as one constant."""
    torch.manual_seed(0)
    named = "Gemma3TextConfig" if family == "Gemma3" else f"{family}Config"
    config = getattr(transformers, named)(**SIZES, **FAMILIES[family])
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
    return model


class WithCache(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A decoder that takes and gives keys and values layer by layer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any, mask: Any, positions: Any, past: list[Any]) -> tuple[Any, ...]:
        cache = transformers.DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        found = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
        )
        pairs = ((layer.keys, layer.values) for layer in found.past_key_values.layers)
        return (found.logits, *(x for pair in pairs for x in pair))


def export(model: Any, file: Path) -> None:
    config = model.config
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    count = 2 * config.num_hidden_layers
    past = [torch.randn(2, config.num_key_value_heads, 5, size) for _ in range(count)]
    ids, mask = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 8, dtype=torch.int64)
    names = [f"{i // 2}.{('key', 'value')[i % 2]}" for i in range(count)]
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            WithCache(model), (ids, mask, torch.arange(5, 8).repeat(2, 1), past), file, dynamo=True, verbose=False,
            input_names=["input_ids", "attention_mask", "position_ids", *(f"past_key_values.{name}" for name in names)],
            output_names=["logits", *(f"present.{name}" for name in names)],
            dynamic_shapes=(
                {0: "batch", 1: "seq"}, {0: "batch", 1: "total"}, {0: "batch", 1: "seq"},
                [{0: "batch", 2: "past"} for _ in past],
            ),
        )  # fmt: skip


@pytest.fixture(scope="module", params=FAMILIES)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    logging.disable(logging.WARNING)
    try:
        model = build(request.param)
        file = tmp_path_factory.mktemp("exported") / f"{request.param}.onnx"
        export(model, file)
    finally:
        logging.disable(logging.NOTSET)
    return model, file


def wanted(model: Any) -> np.ndarray:
    with torch.no_grad():
        logits: np.ndarray = model(torch.tensor([TOKENS])).logits[0].numpy()
    return logits


def in_pieces(step: Callable[[list[int]], np.ndarray]) -> np.ndarray:
    ends = np.cumsum(PIECES)
    assert ends[-1] == len(TOKENS)
    return np.concatenate([step(TOKENS[end - size : end]) for end, size in zip(ends, PIECES, strict=True)])


def test_an_exported_decoder_is_one_region(exported: tuple[Any, Path]) -> None:
    model, file = exported
    module = tinycomp.compile(file)
    report = module.report()
    assert [region.target for region in report.regions] == ["c"]
    assert not report.hosts
    if model.config._attn_implementation != "eager":
        assert str(module.graph).count("c.grouped_attention@") == model.config.num_hidden_layers


def test_an_exported_decoder_gives_the_logits_of_torch(exported: tuple[Any, Path]) -> None:
    model, file = exported
    expected = wanted(model)
    found = in_pieces(Decoder(tinycomp.compile(file)).step)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


def test_an_exported_decoder_continues_as_torch_does(exported: tuple[Any, Path]) -> None:
    model, file = exported
    tokens = list(TOKENS)
    with torch.no_grad():
        for _ in range(8):
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    found = list(tinycomp.generate(tinycomp.compile(file), TOKENS, max_new_tokens=8))
    assert found == tokens[len(TOKENS) :]
