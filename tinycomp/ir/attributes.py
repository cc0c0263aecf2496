"""Reading the inner parts of the textual form: types, attribute values, and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tinycomp.errors import ParseError, did_you_mean
from tinycomp.ir.lexer import Token, TokenStream
from tinycomp.ir.literals import array_from_hex, array_from_items
from tinycomp.ir.types import (
    UNKNOWN_DTYPE,
    Dim,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    known_dtypes,
    type_of,
)


class AttributeParser(TokenStream):
    """Rules ``type``, ``attr``, ``dict`` and ``data`` of the grammar.

    Args:
        source: The text.
        constants: Large arrays by content hash.
    """

    def __init__(self, source: str, constants: Mapping[str, np.ndarray] | None) -> None:
        super().__init__(source)
        self._store = constants

    # Types ---------------------------------------------------------------------------------------------------------

    def type(self) -> Type:
        """Read a type."""
        if self.ahead.text != "<":
            return self._tensor_type()
        with self.nesting("types"):
            kind = self.name("a type")
            self.take("<")
            type_ = self._container(kind)
            self.take(">")
            return type_

    def _container(self, kind: str) -> Type:
        if kind == "seq":
            return SequenceType(self.type())
        if kind == "optional":
            return OptionalType(self.type())
        if kind != "map":
            self.fail(f'there is no kind of type "{kind}"', expected="seq, optional or map")
        key = self._dtype()
        self.take(",")
        return MapType(key, self.type())

    def _tensor_type(self) -> TensorType:
        dtype = self._dtype()
        self.take("[")
        shape: tuple[Dim, ...] | None = None
        if not self.skip("..."):
            shape = tuple(self.items(("]", ";"), self._dim))
        layout = self.name("a layout such as NHWC") if self.skip(";") else ""
        self.take("]")
        return TensorType(dtype, shape, layout)

    def _dtype(self) -> str:
        at = self.now
        if self.skip("?"):
            return UNKNOWN_DTYPE
        if at.kind != "WORD":
            self.fail("unexpected text", expected="a type such as float32[2, 3]")
        if at.text not in known_dtypes():
            self.fail(f'there is no dtype "{at.text}"', at=at, hint=did_you_mean(at.text, known_dtypes()))
        return self.advance().text

    def _dim(self) -> Dim:
        if self.skip("?"):
            return None
        if self.now.kind == "NUMBER" and self.now.text not in ("inf", "nan"):
            size = self.integer("a dimension")
            if size < 0:
                self.fail(f"a dimension is negative: {size}")
            return size
        if self.now.kind == "NUMBER":
            return self.advance().text
        return self.name("a dimension: a size, a symbol, or ?")

    # Attribute values ----------------------------------------------------------------------------------------------

    def dict(self) -> dict[str, Any]:
        """Read ``{name = value, …}``."""
        found: dict[str, Any] = {}

        def entry() -> None:
            at = self.now
            key = self.name("the name of an attribute")
            if key in found:
                self.fail(f'"{key}" is given twice', at=at)
            self.take("=")
            found[key] = self.attr()

        self.sequence("{", "}", entry)
        return found

    def attr(self) -> Any:
        """Read one attribute value."""
        token = self.now
        if token.text == "[":
            with self.nesting("lists"):
                return self.sequence("[", "]", self.attr)
        if token.kind == "BYTES":
            self.advance()
            return self._bytes(token)
        if token.text == "dense":
            self.advance()
            return self._dense()
        if token.text == "type":
            self.advance()
            return self.type()
        return self._scalar()

    def _bytes(self, token: Token) -> bytes:
        try:
            return self.unquote(token.text[1:], token).encode("latin-1")
        except UnicodeEncodeError:
            self.fail("a bytes text has a character above 255", at=token)

    def _dense(self) -> np.ndarray:
        at = self.now
        type_ = self.type()
        if not isinstance(type_, TensorType):
            self.fail("an array needs a tensor type", at=at)
        return self.array(type_)

    def _scalar(self) -> bool | int | float | str:
        token = self.now
        if token.kind == "STRING":
            return self.string()
        if token.text in ("true", "false"):
            return self.advance().text == "true"
        if token.kind != "NUMBER":
            self.fail("unexpected text", expected="a number, a text in quotes, true, false, a list, dense or type")
        return _number(self.number_text())

    # Arrays --------------------------------------------------------------------------------------------------------

    def at_data(self) -> bool:
        """Whether the elements of an array come now, not their type."""
        return self.now.kind in ("NUMBER", "STRING", "HASH") or self.now.text in ("[", "hex", "true", "false")

    def array(self, type_: TensorType) -> np.ndarray:
        """Read the elements of an array of ``type_``."""
        at = self.now
        if at.kind == "HASH":
            return self._stored(type_)
        try:
            if self.skip("hex"):
                return array_from_hex(self.string(), type_)
            items = self.sequence("[", "]", self._scalar) if at.text == "[" else [self._scalar()]
            return array_from_items(items, type_)
        except ParseError:
            raise
        except (ValueError, OverflowError) as error:
            self.fail(f"the literal does not fit: {error}", at=at)

    def _stored(self, type_: TensorType) -> np.ndarray:
        token = self.advance()
        key = token.text[1:]
        array = None if self._store is None else self._store.get(key)
        if array is None:
            self.fail(
                f"the elements of constant #{key} are not at hand",
                at=token,
                found="no store of constants" if self._store is None else f"{len(self._store)} other constants",
                hint="Pass the dict that print_graph(graph, constants=...) filled as parse_graph(text, constants=...).",
            )
        if type_of(array) != TensorType(type_.dtype, type_.shape):
            self.fail(f"constant #{key} has another type", at=token, expected=str(type_), found=str(type_of(array)))
        return array


def _number(text: str) -> int | float:
    if text.endswith("f") and text != "inf" and text != "-inf":
        return float(np.float32(text[:-1]))
    if text.lstrip("-").isdigit():
        return int(text)
    return float(text)
