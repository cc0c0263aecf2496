"""Small random changes to bytes, numbers, protobuf messages and JSON."""

from __future__ import annotations

import copy
import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

INTEGERS = (0, 1, -1, 2, 3, 7, 8, 15, 16, 17, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32)
LARGE = ((1 << 62), (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "N", "x/../y", "\u00e9", "a" * 300, "/etc/passwd", "\x00", "%", "ai.onnx", "NOTSET")


# Bytes and numbers ----------------------------------------------------------------------------------------------------


def mutate_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return a copy with up to eight changes: bits turned, pieces left out, doubled, moved or overwritten."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(found) + 1)
        size = min(rng.choice((1, 1, 2, 4, 8, 64, 1024)), len(found) - at)
        match rng.randrange(6):
            case 0 if size:
                found[at] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + size]
            case 2:
                found[at:at] = found[at : at + size]
            case 3:
                found[at : at + size] = rng.randbytes(size)
            case 4:
                other = rng.randrange(len(found) + 1)
                found[at : at + size] = found[other : other + size]
            case _:
                found[at : at + size] = bytes([rng.choice((0, 0x7F, 0x80, 0xFF))]) * size
    return bytes(found[: rng.randrange(len(found) + 1)] if rng.random() < 0.1 else found)


def mutate_integer(rng: random.Random, value: int) -> int:
    """Return a number near ``value``, or one that often makes trouble."""
    near = (value + 1, value - 1, -value, value * 2, value // 2)
    return rng.choice((*near, *near, rng.choice(INTEGERS), rng.choice(INTEGERS), rng.choice(LARGE)))


# Protobuf -------------------------------------------------------------------------------------------------------------


def mutate_message(rng: random.Random, message: Message, donor: Message) -> None:
    """Change a message in up to four places; ``donor`` is where parts of other messages come from."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = _places(message)
        if not places:
            return
        owner, field = rng.choice(places)
        if field.is_repeated:
            _mutate_repeated(rng, owner, field, donor)
        else:
            _mutate_single(rng, owner, field, donor)


def messages(root: Message) -> list[Message]:
    """Return a message and all that it holds."""
    found = [root]
    for each in found:
        for field, value in each.ListFields():
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                found.extend(value if field.is_repeated else [value])
    return found


def _places(root: Message) -> list[tuple[Message, FieldDescriptor]]:
    """Return every field that is set, and one that is not for every message."""
    found = []
    for each in messages(root):
        used = [field for field, _ in each.ListFields()]
        unused = [field for field in each.DESCRIPTOR.fields if field not in used]
        found += [(each, field) for field in (*used, *unused[:1])]
    return found


def _mutate_repeated(rng: random.Random, owner: Message, field: FieldDescriptor, donor: Message) -> None:
    items = getattr(owner, field.name)
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    choice = rng.randrange(5)
    if choice == 0 and items:
        del items[rng.randrange(len(items))]
    elif choice == 1 and items:
        items.append(copy.deepcopy(items[rng.randrange(len(items))]))
    elif choice == 2 and len(items) > 1:
        kept = [copy.deepcopy(i) for i in items]
        rng.shuffle(kept)
        del items[:]
        items.extend(kept)
    elif is_message:
        _splice(rng, items.add() if choice == 3 or not items else rng.choice(items), donor)
    elif items:
        at = rng.randrange(len(items))
        items[at] = _scalar(rng, field, items[at], donor)
    else:
        items.append(_scalar(rng, field, field.default_value or _zero(field), donor))


def _mutate_single(rng: random.Random, owner: Message, field: FieldDescriptor, donor: Message) -> None:
    if rng.random() < 0.25:
        owner.ClearField(field.name)
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        _splice(rng, getattr(owner, field.name), donor)
    else:
        setattr(owner, field.name, _scalar(rng, field, getattr(owner, field.name), donor))


def _splice(rng: random.Random, message: Message, donor: Message) -> None:
    """Put a message of the same kind out of ``donor`` in the place of ``message``."""
    fitting = [m for m in messages(donor) if m.DESCRIPTOR is message.DESCRIPTOR]
    if fitting:
        message.CopyFrom(rng.choice(fitting))


def _zero(field: FieldDescriptor) -> Any:
    return {FieldDescriptor.CPPTYPE_STRING: ""}.get(field.cpp_type, 0)


_WIDTH = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}


def _scalar(rng: random.Random, field: FieldDescriptor, value: Any, donor: Message) -> Any:
    kind = field.cpp_type
    if kind in _WIDTH:
        low, high = _WIDTH[kind]
        small = field.name in ("data_type", "elem_type", "type") and rng.random() < 0.7
        return rng.randrange(30) if small else min(max(mutate_integer(rng, value), low), high)
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return rng.choice((*FLOATS, value * 2, -value))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return not value
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if field.type == FieldDescriptor.TYPE_BYTES:
        return mutate_bytes(rng, bytes(value))
    if isinstance(value, bytes):
        value = value.decode(errors="replace")  # a text that is no UTF-8 is read as bytes
    return _text(rng, value, donor)


def _text(rng: random.Random, value: str, donor: Message) -> str:
    """Return a name: one that is used elsewhere, an unusual one, or the same with a change."""
    names = [v for m in messages(donor) for f, v in m.ListFields() if isinstance(v, str)]
    names += [
        n for m in messages(donor) for f, v in m.ListFields() if f.name in ("input", "output") for n in v
        if isinstance(n, str)
    ]  # fmt: skip
    if names and rng.random() < 0.7:
        return rng.choice(names)
    return rng.choice((*TEXTS, value + "_", value[1:]))


# JSON -----------------------------------------------------------------------------------------------------------------


def mutate_json(rng: random.Random, root: Any) -> Any:
    """Return a copy of a JSON value with up to four changes: numbers, texts, members left out, doubled, exchanged."""
    found = copy.deepcopy(root)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = _containers(found)
        if not places:
            break
        _mutate_container(rng, *rng.choice(places), places)
    return found


def _containers(root: Any) -> list[tuple[Any, Any]]:
    """Return every (list or dict, index or key) of a JSON value."""
    found: list[tuple[Any, Any]] = []
    waiting = [root]
    for each in waiting:
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        found += [(each, key) for key in keys]
        waiting += [each[key] for key in keys]
    return found


def _mutate_container(rng: random.Random, owner: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    if not _holds(owner, key):
        return
    choice = rng.random()
    if choice < 0.12:
        del owner[key]
    elif choice < 0.2 and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(owner[key]))
    elif choice < 0.35:
        other, at = rng.choice(places)
        if _holds(other, at):
            owner[key] = copy.deepcopy(other[at])
    else:
        owner[key] = _json_value(rng, owner[key])


def _holds(owner: Any, key: Any) -> bool:
    """Whether a container still has what was there when its members were listed."""
    return key in owner if isinstance(owner, dict) else key < len(owner)


def _json_value(rng: random.Random, value: Any) -> Any:
    if rng.random() < 0.15:
        return rng.choice((None, True, [], {}, "", 0, -1, 1.5, [[]], 1 << 70))
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return mutate_integer(rng, value)
    if isinstance(value, float):
        return rng.choice((*FLOATS, value * 2, -value))
    if isinstance(value, str):
        return rng.choice((value[1:], value + "x", rng.choice(TEXTS), value.swapcase()))
    return value[:-1] if isinstance(value, list) else None


def mutate_text(rng: random.Random, text: str) -> str:
    """Return a copy with up to four changes: numbers, words exchanged, lines left out, doubled or moved."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        words = lines[at].split(" ")
        match rng.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines)), lines[at])
            case 2:
                word = rng.randrange(len(words))
                words[word] = rng.choice(rng.choice(lines).split(" "))
            case 3:
                words[rng.randrange(len(words))] = rng.choice(("", "-1", "0", "[", "]", "%x", "none", "2147483648"))
            case 4:
                rng.shuffle(words)
            case _:
                lines[at] = "".join(_digit(rng, c) for c in lines[at])
                words = lines[at].split(" ")
        if at < len(lines):
            lines[at] = " ".join(words)
        text = "\n".join(lines)
    return text


def _digit(rng: random.Random, char: str) -> str:
    return rng.choice("0123456789") if char.isdigit() and rng.random() < 0.3 else char
