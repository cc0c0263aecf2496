"""``tinycomp generate``."""

from __future__ import annotations

import os
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.models import load_module
from tinycomp.cli.options import add_compilation, amount, natural, positive
from tinycomp.cli.session import Command, Session
from tinycomp.generation import Decoder, generate
from tinycomp.generation.decoder import read_config
from tinycomp.generation.text import ByteTokenizer, JsonTokenizer, Tokenizer

_EXAMPLE = """\
tinycomp generate phi-3/ --prompt "The licence says" --max-new-tokens 50
tinycomp generate phi-3/ --prompt "Once" --temperature 0.8 --top-p 0.9 --seed 1
tinycomp generate decoder.onnx --tokens 1,15043,29892"""
_MODEL, _CONFIG, _TOKENIZER = "model.onnx", "genai_config.json", "tokenizer.json"
_BYTES = 256


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "model",
        help=f"a folder with {_MODEL} (or the file that {_CONFIG} names) and {_TOKENIZER}; or an .onnx, .tir or .tcm "
        "file, for --tokens",
    )
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument("--prompt", metavar="TEXT", help="the text to continue")
    given.add_argument("--tokens", type=_ids, metavar="1,2,3", help="its tokens instead")
    choice = parser.add_argument_group("choosing tokens", "for example: --temperature 0.8 --top-p 0.9 --seed 1")
    choice.add_argument("--max-new-tokens", type=natural, default=128, metavar="N", help="when to end (default: 128)")
    choice.add_argument("--temperature", type=amount, default=0.0, metavar="T", help="0 for the likeliest (default)")
    choice.add_argument("--top-k", type=positive, metavar="K", help="choose from the K likeliest tokens")
    choice.add_argument("--top-p", type=float, metavar="P", help="choose from the fewest with this probability")
    choice.add_argument(
        "--stop", type=_ids, action="append", default=[], metavar="1,2", help="tokens that end the text, in this order"
    )
    choice.add_argument("--seed", type=natural, help="make the same random choices each time")
    add_compilation(parser, "cache")


def _ids(text: str) -> list[int]:
    try:
        return [natural(part.strip()) for part in text.split(",")]
    except ArgumentTypeError:
        raise ArgumentTypeError(f"expected whole numbers such as 1,2,3, found {text}") from None


def _run(options: Namespace, session: Session) -> int:
    folder = Path(options.model)
    config = folder / _CONFIG if os.path.lexists(folder / _CONFIG) else None
    if folder.is_dir():
        options.model = str(folder / read_config(config).get("decoder", {}).get("filename", _MODEL))
    module = load_module(options, session)
    tokenizer = _tokenizer(folder, Decoder(module, capacity=1, config=config).vocabulary)
    if options.prompt is not None and tokenizer is None:
        raise UsageError(
            "there is no tokenizer for the prompt", where=options.model, expected=f"a folder with {_TOKENIZER}",
            hint="Name the folder, or give --tokens.",
        )  # fmt: skip
    prompt = options.tokens if tokenizer is None or options.prompt is None else tokenizer.encode(options.prompt)
    decode: Callable[[int], str] = "{} ".format if tokenizer is None else tokenizer.decoder()
    text, tokens, started = "", list[int](), time.perf_counter()
    for token in generate(
        module, prompt, max_new_tokens=options.max_new_tokens, temperature=options.temperature, top_k=options.top_k,
        top_p=options.top_p, stop=options.stop, seed=options.seed, config=config,
    ):  # fmt: skip
        tokens.append(token)
        text += (piece := decode(token))
        session.show(piece, end="")
    seconds = time.perf_counter() - started
    session.show("")
    session.note(f"{len(tokens)} tokens in {seconds:.2f} s behind {len(prompt)} of the prompt")
    words = None if tokenizer is None else text
    session.result({"text": words, "tokens": tokens, "prompt_tokens": prompt, "seconds": seconds})
    return OK


def _tokenizer(folder: Path, vocabulary: int | None) -> Tokenizer | None:
    """Return what the folder has; a model of 256 tokens without any works on bytes."""
    if os.path.lexists(folder / _TOKENIZER):
        return JsonTokenizer(folder / _TOKENIZER)
    return ByteTokenizer() if vocabulary == _BYTES else None


COMMAND = Command(_EXAMPLE, _configure, _run)
