"""Builds the C runtime; everything else about the package is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["runtime_c/build_ffi.py:make_ffi"])
