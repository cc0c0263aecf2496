"""Where every operator of ONNX runs: tiers, versions, dtypes, and how many node tests leave nothing to the host.

Run as ``python -m benchmarks operators``, which prints one table per family; ``--write`` puts the overview into
``docs/operators.md``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import defs

import tinycomp
from benchmarks.page import Page, heading, line, table
from tinycomp.driver.pipeline import optimisation_passes, partitioning_passes
from tinycomp.driver.report import make_report
from tinycomp.errors import TinycompError, UnsupportedError
from tinycomp.frontend.quantized_layer import QUANTIZED_PRODUCTS
from tinycomp.ir.proto import DTYPE_BY_NUMBER
from tinycomp.ir.types import UNKNOWN
from tinycomp.ops import OPS
from tinycomp.ops.reference import bind_reference
from tinycomp.runtime.rows import BORDER
from tinycomp.target import find

PAGE = Page("operators", "operators.md")
TIERS = ("numpy", "onnx.reference")
"""Who may compute an operator on the host."""
REFUSED = "none"
"""The tier of an operator that nobody computes."""
NO_FAMILY = "other"
"""The family of operators without a record."""
_DTYPES = {
    f"tensor({onnx.TensorProto.DataType.Name(number).lower()})": dtype for number, dtype in DTYPE_BY_NUMBER.items()
}
_GROUPS = {
    "floats": {"float16", "bfloat16", "float32", "float64"},
    "ints": {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "narrow ints": {"int2", "uint2", "int4", "uint4"},
    "float8": {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"},
    "complex": {"complex64", "complex128"},
}


@dataclass(frozen=True)
class Operator:
    """What is known about an operator without running it.

    Attributes:
        domain: Its domain; ``ai.onnx`` for ONNX's own.
        name: Its name.
        family: The file of ``tinycomp/ops`` that describes it.
        tier: Who computes it on the host: ``numpy``, ``onnx.reference``, or ``none``.
        versions: Its versions from opset 7 on.
        dtypes: Element types of the first result in the newest version, or of the first operand if no operand shares
            the result's type and it takes more; groups by name.
        on_c: Whether the C target has a rule for it, or takes the quantised layer that it stands for.
    """

    domain: str
    name: str
    family: str
    tier: str
    versions: tuple[int, ...]
    dtypes: str
    on_c: bool

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the table that do not depend on running anything."""
        versions = ", ".join(map(str, self.versions))
        return (self.name, self.domain, self.tier, versions, self.dtypes, "yes" if self.on_c else "")


def operators() -> list[Operator]:
    """Every operator of ONNX that is not withdrawn, by family, domain and name."""
    history: dict[tuple[str, str], list[defs.OpSchema]] = defaultdict(list)
    for schema in defs.get_all_schemas_with_history():
        history[schema.domain, schema.name].append(schema)
    rules = find("c").rules
    found = []
    for (domain, name), schemas in history.items():
        schemas.sort(key=lambda s: s.since_version)
        if not schemas[-1].deprecated:
            record = OPS.find(name, domain)
            family = record.family if record is not None else NO_FAMILY
            found.append(
                Operator(
                    domain or "ai.onnx", name, family, _tier(schemas[-1]), _versions(schemas), _dtypes(schemas[-1]),
                    (domain, name) in rules or (not domain and name in QUANTIZED_PRODUCTS),
                )
            )  # fmt: skip
    return sorted(found, key=lambda o: (o.family == NO_FAMILY, o.family, o.domain, o.name))


def _versions(schemas: Sequence[defs.OpSchema]) -> tuple[int, ...]:
    """Return the versions in force from opset 7 on (for other domains: all)."""
    versions = [int(s.since_version) for s in schemas]
    oldest = max((v for v in versions if v <= 7), default=0) if not schemas[0].domain else 0
    return tuple(v for v in versions if v >= oldest)


def _tier(schema: defs.OpSchema) -> str:
    record = OPS.find(schema.name, schema.domain, schema.since_version)
    if record is not None and record.kernel is not None:
        return "numpy"
    inputs, outputs = [UNKNOWN] * schema.min_input, [UNKNOWN] * max(schema.min_output, 1)
    try:
        bind_reference(schema.name, schema.domain, schema.since_version, {}, inputs, outputs)
    except UnsupportedError as error:
        if isinstance(error.__cause__, NotImplementedError):  # anything else is about the attributes, which are missing
            return REFUSED
    return "onnx.reference"


def _dtypes(schema: defs.OpSchema) -> str:
    operands, result = schema.inputs, schema.outputs[0]
    shared = any(formal.type_str == result.type_str for formal in operands)
    formals = [result] if shared else [*operands[:1], result]
    left = max(({_DTYPES[t] for t in formal.types if t in _DTYPES} for formal in formals), key=len)
    texts = []
    for group, members in _GROUPS.items():
        if members <= left:
            texts.append(group)
            left -= members
    return ", ".join([*texts, *sorted(left)]) or "no tensors"


@dataclass(frozen=True)
class NodeTests:
    """How ONNX's node tests fare on the C target, by domain and name of the operator.

    Attributes:
        total: The tests whose model is one node of the operator.
        taken: Those of them that leave nothing to the host.
        several: Tests whose model has several nodes: their number, and how many leave nothing to the host.
    """

    total: Mapping[tuple[str, str], int]
    taken: Mapping[tuple[str, str], int]
    several: tuple[int, int]


def node_tests() -> NodeTests:
    """Partition the model of every node test for the C target; that it also runs is what the backend suite tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    total: Counter[tuple[str, str]] = Counter()
    taken: Counter[tuple[str, str]] = Counter()
    for case in cases:
        nodes = case.model.graph.node
        key = (nodes[0].domain or "ai.onnx", nodes[0].op_type) if len(nodes) == 1 else ("", "")
        total[key] += 1
        taken[key] += _leaves_nothing(case.model)
    return NodeTests(total, taken, (total["", ""], taken["", ""]))


def _leaves_nothing(model: onnx.ModelProto) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graph = tinycomp.from_onnx(model)
            targets = [find("c")]
            partitioned = tinycomp.Pipeline([*optimisation_passes(targets), *partitioning_passes(targets)])(graph)
            hosts = make_report(partitioned, graph.name, ["c"]).hosts
            return all(host.tier == BORDER for host in hosts)
        except TinycompError:
            return False


def overview(rows: Sequence[Operator], tests: NodeTests) -> str:
    """Return where the operators of each family run, one row per family, as Markdown."""
    names = ["family", "C target", "host, numpy", "host, onnx.reference", "node tests on c"]
    lines = [heading(names, left=4)]
    for family, members in _families(rows).items():
        on_c = [row for row in members if row.on_c]
        hosts = ([row for row in members if row.tier == tier and not row.on_c] for tier in TIERS)
        lines.append(line((family, _names(on_c), *map(_names, hosts), "/".join(map(str, _taken(members, tests))))))
    taken, total = (sum(counts) for counts in zip(_taken(rows, tests), reversed(tests.several), strict=True))
    several, all_several = reversed(tests.several)
    refused = _names([row for row in rows if row.tier == REFUSED]) or "none"
    count = sum(row.on_c for row in rows)
    return "\n".join(
        [
            *lines,
            "",
            f"{count} of {len(rows)} operators have a rule of the C target. Refused everywhere: {refused}. Of ONNX's "
            f"{total} node tests {taken} leave nothing to the host, among them {several} of the {all_several} whose "
            "model has several nodes.",
        ]
    )


def _families(rows: Iterable[Operator]) -> dict[str, list[Operator]]:
    families: dict[str, list[Operator]] = defaultdict(list)
    for row in rows:
        families[row.family.replace("_", " ")].append(row)
    return families


def _names(rows: Iterable[Operator]) -> str:
    """Join the names of operators; those of other domains than ONNX's own stand behind their domain."""
    by_domain: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        by_domain[row.domain].append(row.name)
    return "; ".join(
        f"{'' if domain == 'ai.onnx' else f'{domain}: '}{', '.join(names)}" for domain, names in by_domain.items()
    )


def details(rows: Iterable[Operator], tests: NodeTests) -> str:
    """Return a table per family with everything that is known about each operator, as Markdown."""
    names = ["operator", "domain", "host", "versions", "dtypes", "rule of c", "node tests on c"]
    lines: list[str] = []
    for family, members in _families(rows).items():
        cells = ([*row.cells, _count(row, tests)] for row in members)
        lines += [f"### {family}", "", table(names, cells, left=6), ""]
    return "\n".join(lines)


def _count(row: Operator, tests: NodeTests) -> str:
    key = (row.domain, row.name)
    return f"{tests.taken.get(key, 0)} of {tests.total[key]}" if tests.total.get(key) else "no tests"


def _taken(rows: Iterable[Operator], tests: NodeTests) -> tuple[int, int]:
    """Return how many node tests of the operators leave nothing to the host, and how many there are."""
    keys = [(row.domain, row.name) for row in rows]
    return sum(tests.taken.get(k, 0) for k in keys), sum(tests.total.get(k, 0) for k in keys)


def main() -> int:
    """Print both kinds of tables, and write the overview if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks operators", description=__doc__.partition("\n")[0])
    PAGE.add_option(parser)
    options = parser.parse_args()
    rows, tests = operators(), node_tests()
    print(details(rows, tests))
    PAGE.publish(overview(rows, tests), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
