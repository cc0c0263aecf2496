"""Tests of ONNX's backend suite that tinycomp does not pass, with the reason.

``FAILS`` must fail: one that begins to pass is reported, and then belongs off the list. ``EITHER`` may pass or fail:
what is expected there is not what ONNX defines to the last bit.
"""

from __future__ import annotations

import importlib.util

_TRAINING = (
    "Gradient differentiates the graph around it, for training; it is refused (onnx.reference has no kernel either)"
)
_PILLOW = "the reference kernel of ImageDecoder needs Pillow"
_SCALARS = (
    "a limitation of ONNX's runner, not of the results: it calls len() on the elements of a sequence, which 0-d arrays "
    "do not have; test_backend.py compares this one itself"
)
_DRAW = (
    "the expected values come from numpy's global generator in whatever state it was, even where the node has a seed; "
    "ONNX calls them informational"
)
_ROUNDED = (
    "the expected values are rounded to half precision after every operator, ours are not: both are within 9e-4 of the "
    "exact ones, and two of 192 are further apart than the 1e-3 that the test allows"
)
_NOISE = (
    "ten of the expected values are 1.9e-7, the rounding of numpy's transform in float32, where the exact ones are 0 "
    "and ours 3e-15; the test allows 1e-7, and test_definition.py compares with the transform in double"
)

FAILS = {"test_gradient_of_add": _TRAINING, "test_gradient_of_add_and_mul": _TRAINING, "test_loop16_seq_none": _SCALARS}
FAILS |= (
    {}
    if importlib.util.find_spec("PIL")
    else {
        "test_image_decoder_decode_bmp_rgb": _PILLOW,
        "test_image_decoder_decode_jpeg2k_rgb": _PILLOW,
        "test_image_decoder_decode_jpeg_bgr": _PILLOW,
        "test_image_decoder_decode_jpeg_grayscale": _PILLOW,
        "test_image_decoder_decode_jpeg_rgb": _PILLOW,
        "test_image_decoder_decode_png_rgb": _PILLOW,
        "test_image_decoder_decode_pnm_rgb": _PILLOW,
        "test_image_decoder_decode_tiff_rgb": _PILLOW,
        "test_image_decoder_decode_webp_rgb": _PILLOW,
    }
)
EITHER = {
    "test_bernoulli": _DRAW,
    "test_bernoulli_double": _DRAW,
    "test_bernoulli_double_expanded": _DRAW,
    "test_bernoulli_expanded": _DRAW,
    "test_bernoulli_seed": _DRAW,
    "test_bernoulli_seed_expanded": _DRAW,
    "test_attention_4d_causal_fp16_expanded": _ROUNDED,
    "test_dft_inverse": _NOISE,
    "test_dft_inverse_opset19": _NOISE,
}
