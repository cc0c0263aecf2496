"""Ensembles of decision trees: TreeEnsemble, and the older TreeEnsembleClassifier and TreeEnsembleRegressor.

All of their forms become one table first, :class:`Ensemble`: one kind of comparison, children behind their parents, a
row of weights per leaf. Where ONNX leaves open what a result is (two classes of which the weights name only one), it is
what onnxruntime gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.records import dataclass
from tinycomp.symbolic import Size

FAMILY = OpFamily("trees")
_ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER, _LEAF = range(8)
_ROWS = 1 << 20
"""Pairs of a row and a tree that the numpy kernel looks at together."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Hold trees in the form that kernels run.

    A node sends a row to its first child where ``x[feature] <= threshold`` holds, or ``x[feature]`` is NaN and the node
    tracks missing values there, else to its second. Children have greater numbers than their parents; a leaf is its own
    child.

    Attributes:
        feature: Column of each node, int32[nodes]; 0 at leaves.
        threshold: Of each node, float32 or float64[nodes].
        children: int32[nodes, 2].
        missing: Whether NaN goes to the first child, bool[nodes].
        leaf: The row of ``weights`` of each leaf, int32[nodes]; -1 at other nodes.
        weights: What a leaf adds to every output, [leaves, outputs] of the thresholds' type.
        roots: int32[trees].
        depths: The longest path of each tree, int32[trees].
        aggregate: One of :data:`AGGREGATES`.
        transform: One of :data:`TRANSFORMS`.
        base: What is added to every output that a leaf speaks of, after aggregation, [outputs].
        only: The class that has weights where only one of two has; it decides alone. Else -1.
        mirrored: Whether that is the first class, and its score speaks for the second.
        positive: Whether no weight is negative.
    """

    feature: Array
    threshold: Array
    children: Array
    missing: Array
    leaf: Array
    weights: Array
    roots: Array
    depths: Array
    aggregate: str
    transform: str
    base: Array
    only: int = -1
    mirrored: bool = False
    positive: bool = False

    @property
    def outputs(self) -> int:
        """Return the number of targets or classes."""
        return int(self.weights.shape[1])

    @property
    def columns(self) -> Array:
        """Return the only output that the weights of each tree are not 0 for, int32[trees]; -1 if there are several."""
        at = np.flatnonzero(self.leaf >= 0)
        owner = np.searchsorted(self.roots, at, side="right") - 1  # the nodes of a tree follow its root
        speaks = np.zeros((len(self.roots), self.outputs), bool)
        np.logical_or.at(speaks, owner, self.weights[self.leaf[at]] != 0)
        return np.where(speaks.sum(1) <= 1, speaks.argmax(1), -1).astype(np.int32)

    @property
    def target_transform(self) -> str:
        """Return the transform of targets: a single one has none but ``PROBIT``."""
        return self.transform if self.outputs > 1 or self.transform == "PROBIT" else "NONE"

    @property
    def features(self) -> int:
        """Return the least number of columns that rows must have."""
        return int(self.feature.max(initial=0)) + 1

    def leaves_of(self, x: Array) -> Array:
        """Return the row of weights that each row reaches in each tree, [rows, trees]."""
        at = np.broadcast_to(self.roots, (len(x), len(self.roots))).astype(np.intp)
        rows = np.arange(len(x))[:, None]
        for _ in range(int(self.depths.max(initial=0))):
            values = x[rows, self.feature[at]]
            first = (values <= self.threshold[at]) | (np.isnan(values) & self.missing[at])
            at = self.children[at, np.where(first, 0, 1)]
        return self.leaf[at]

    def scores(self, x: Array) -> Array:
        """Return the aggregated weights of every row, with base values, [rows, outputs]."""
        x = x.astype(self.threshold.dtype, copy=False)
        scores = np.zeros((len(x), self.outputs), self.weights.dtype)
        step = max(_ROWS // max(len(self.roots), 1), 1)
        for start in range(0, len(x), step):
            leaves = self.leaves_of(x[start : start + step])
            scores[start : start + step] = self._aggregated(leaves)
        return scores

    def _aggregated(self, leaves: Array) -> Array:
        if self.aggregate in ("SUM", "AVERAGE"):
            total = np.zeros((len(leaves), self.outputs), self.weights.dtype)
            for tree in range(leaves.shape[1]):
                total += self.weights[leaves[:, tree]]
            return (total / total.dtype.type(len(self.roots)) if self.aggregate == "AVERAGE" else total) + self.base
        extreme = np.min if self.aggregate == "MIN" else np.max
        found = extreme(self.weights[leaves], axis=1)
        return np.where(np.isinf(found), 0, found + self.base).astype(found.dtype)


_KNOWN: dict[tuple[int, str], tuple[Any, Any]] = {}
"""Made lately of a node's attributes, by the identity of one of them, which lives as long as its entry, and by kind."""
_MOST_KNOWN = 16


def _remembered(featureids: Any, kind: str, make: Callable[[], Any]) -> Any:
    key = id(featureids), kind
    known = _KNOWN.get(key)
    if known is None or known[0] is not featureids:
        made = make()
        while len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)), None)
        _KNOWN[key] = known = featureids, made
    return known[1]


def ensemble_of(op: str, attrs: Mapping[str, Any], dtype: Any = "float32") -> Ensemble:
    """Return the table of a node; it is made once for the checks, the lowering and the runs of a node.

    Args:
        op: The operator.
        attrs: Its attributes.
        dtype: The type of rows; those in float64 are compared and added up in it.

    Raises:
        ModelError: If the attributes describe no trees: lists of different lengths, nodes that are not there, cycles.
    """
    wide = dtype == "float64"

    def make() -> Ensemble:
        return _modern(attrs) if op == "TreeEnsemble" else _classic(op, attrs, wide)

    ensemble: Ensemble = _remembered(attrs.get("nodes_featureids"), "wide" if wide else "narrow", make)
    return ensemble


def _fail(op: str, problem: str, expected: str, found: object) -> ModelError:
    return ModelError(f"{op}: {problem}", expected=expected, found=str(found))


def _choice(op: str, name: str, value: Any, known: Sequence[str]) -> str:
    text = known[value] if isinstance(value, int) and 0 <= value < len(known) else str(value)
    if text not in known:
        raise _fail(op, f"unknown {name}", f"one of {', '.join(known)}", text)
    return text


def _numbers(attrs: Mapping[str, Any], name: str, wide: bool) -> Array:
    """Return a list of numbers that may be given as a tensor too, with the type that this has; float32 otherwise.

    Where it is ``wide``, float32 becomes float64.
    """
    tensor = attrs.get(f"{name}_as_tensor")
    values = np.asarray(attrs.get(name, ()), np.float32) if tensor is None else np.asarray(tensor).reshape(-1)
    return values.astype(np.float64) if wide else values


def _integers(op: str, attrs: Mapping[str, Any], name: str, count: int | None = None) -> Array:
    values = np.asarray(attrs.get(name, ()), np.int64)
    if count is not None and len(values) != count:
        raise _fail(op, f"{name} does not fit", f"{count} numbers", len(values))
    return values


def _classic(op: str, attrs: Mapping[str, Any], wide: bool) -> Ensemble:
    """Read a TreeEnsembleClassifier or TreeEnsembleRegressor: nodes by tree and number, weights by node."""
    kind = "class" if op == "TreeEnsembleClassifier" else "target"
    feature = _integers(op, attrs, "nodes_featureids")
    count = len(feature)
    tree, number, yes, no = (
        _integers(op, attrs, f"nodes_{name}", count) for name in ("treeids", "nodeids", "truenodeids", "falsenodeids")
    )
    threshold = _numbers(attrs, "nodes_values", wide)
    if len(threshold) != count:
        raise _fail(op, "nodes_values does not fit", f"{count} numbers", len(threshold))
    modes = _mode_numbers(op, attrs.get("nodes_modes", ()), count)
    tracks = _integers(op, attrs, "nodes_missing_value_tracks_true")
    missing = tracks.astype(bool) if len(tracks) else np.zeros(count, bool)
    if len(missing) != count:
        raise _fail(op, "nodes_missing_value_tracks_true does not fit", f"{count} numbers", len(missing))
    names = _Names(op, tree, number)
    inner = modes != _LEAF
    children = np.full((count, 2), -1, np.int64)
    children[inner, 0] = names.find(tree[inner], yes[inner], "nodes_truenodeids")
    children[inner, 1] = names.find(tree[inner], no[inner], "nodes_falsenodeids")
    pointed = np.zeros(count, bool)
    pointed[children[inner].reshape(-1)] = True
    roots = np.flatnonzero(~pointed)
    if len(roots) != len(np.unique(tree)):
        raise _fail(op, "nodes are not trees", "one root per tree", f"{len(roots)} roots, {len(np.unique(tree))} trees")
    roots = roots[np.argsort(tree[roots], kind="stable")]

    ids = _integers(op, attrs, f"{kind}_ids")
    weight = _numbers(attrs, f"{kind}_weights", wide)
    at = names.find(
        _integers(op, attrs, f"{kind}_treeids", len(ids)),
        _integers(op, attrs, f"{kind}_nodeids", len(ids)),
        f"{kind}_nodeids",
    )
    if len(weight) != len(ids):
        raise _fail(op, f"{kind}_weights does not fit", f"{len(ids)} numbers", len(weight))
    labels = attrs.get("classlabels_int64s") or attrs.get("classlabels_strings") or ()
    outputs = max(len(labels), int(ids.max(initial=-1)) + 1) if kind == "class" else int(attrs.get("n_targets", 1))
    if len(ids) and not 0 <= ids.min() <= ids.max() < outputs:
        raise _fail(op, f"{kind}_ids out of range", f"0 to {outputs - 1}", f"{ids.min()} to {ids.max()}")
    aggregate = _choice(op, "aggregate function", attrs.get("aggregate_function", "SUM"), AGGREGATES)
    leaves = np.full(count, -1, np.int64)
    leaves[~inner] = np.arange(count - inner.sum())
    kept = leaves[at] >= 0
    weights = _weights(aggregate, count - int(inner.sum()), outputs, leaves[at][kept], ids[kept], weight[kept])
    transform = _choice(op, "post transform", attrs.get("post_transform", "NONE"), TRANSFORMS)
    return _finished(
        op, feature, threshold, modes, missing, children, leaves, roots, weights, aggregate, transform,
        _numbers(attrs, "base_values", wide), {},
        only=int(ids[0]) if kind == "class" and outputs == 2 and len(set(ids.tolist())) == 1 else -1,
        positive=bool((weight >= 0).all()),
    )  # fmt: skip


def _modern(attrs: Mapping[str, Any]) -> Ensemble:
    """Read a TreeEnsemble, whose leaves have a table of their own."""
    op = "TreeEnsemble"
    threshold = np.asarray(attrs["nodes_splits"]).reshape(-1)
    count = len(threshold)
    feature = _integers(op, attrs, "nodes_featureids", count)
    modes = np.asarray(attrs["nodes_modes"]).astype(np.int64).reshape(-1)
    weight, ids = np.asarray(attrs["leaf_weights"]).reshape(-1), _integers(op, attrs, "leaf_targetids")
    if len(modes) != count or not ((modes >= 0) & (modes < _LEAF)).all():
        raise _fail(op, "nodes_modes does not fit", f"{count} numbers from 0 to 6", modes.tolist()[:10])
    if len(weight) != len(ids):
        raise _fail(op, "leaf_weights does not fit", f"{len(ids)} numbers", len(weight))
    children = np.full((count + len(ids), 2), -1, np.int64)
    for side, name in enumerate(("true", "false")):
        to, is_leaf = (
            _integers(op, attrs, f"nodes_{name}nodeids", count),
            _integers(op, attrs, f"nodes_{name}leafs", count),
        )
        most = np.where(is_leaf != 0, len(ids), count)
        if ((to < 0) | (to >= most)).any():
            raise _fail(
                op,
                f"nodes_{name}nodeids out of range",
                f"nodes below {count}, leaves below {len(ids)}",
                to.tolist()[:10],
            )
        children[:count, side] = np.where(is_leaf != 0, to + count, to)
    roots = _integers(op, attrs, "tree_roots")
    if not len(roots) or not 0 <= roots.min() <= roots.max() < count:
        raise _fail(op, "tree_roots out of range", f"0 to {count - 1}", roots.tolist()[:10])
    outputs = int(attrs.get("n_targets", 1))
    if len(ids) and not 0 <= ids.min() <= ids.max() < outputs:
        raise _fail(op, "leaf_targetids out of range", f"0 to {outputs - 1}", f"{ids.min()} to {ids.max()}")
    tracks = _integers(op, attrs, "nodes_missing_value_tracks_true")
    missing = tracks.astype(bool) if len(tracks) else np.zeros(count, bool)
    aggregate = _choice(op, "aggregate function", attrs.get("aggregate_function", 1), AGGREGATES)
    none = np.zeros(len(ids), np.int64)
    feature, threshold = np.append(feature, none), np.append(threshold, none.astype(threshold.dtype))
    return _finished(
        op, feature, threshold, np.append(modes, none + _LEAF), np.append(missing, none.astype(bool)), children,
        np.append(np.full(count, -1), np.arange(len(ids))), roots,
        _weights(aggregate, len(ids), outputs, np.arange(len(ids)), ids, weight), aggregate,
        _choice(op, "post transform", attrs.get("post_transform", 0), TRANSFORMS), np.zeros(0, threshold.dtype),
        _members(modes, np.asarray(attrs.get("membership_values", ())).reshape(-1)),
    )  # fmt: skip


def _mode_numbers(op: str, modes: Sequence[Any], count: int) -> Array:
    if len(modes) != count:
        raise _fail(op, "nodes_modes does not fit", f"{count} modes", len(modes))
    known = {name: i for i, name in enumerate(MODES)}
    numbers = [known.get(mode, -1) for mode in modes]
    if -1 in numbers:
        raise _fail(op, "unknown mode of a node", f"one of {', '.join(MODES)}", modes[numbers.index(-1)])
    return np.array(numbers, np.int64)


def _members(modes: Array, values: Array) -> dict[int, Array]:
    """Return the members that each node of mode BRANCH_MEMBER tests for; NaN stands between them."""
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1) if len(values) else []
    lists = [part[~np.isnan(part)] for part in parts]
    nodes = np.flatnonzero(modes == _MEMBER).tolist()
    if len(lists) < len(nodes):
        raise _fail("TreeEnsemble", "membership_values does not fit", f"{len(nodes)} lists", len(lists))
    return dict(zip(nodes, lists, strict=False))


class _Names:
    """The numbers of nodes, by tree and by their number in it."""

    def __init__(self, op: str, tree: Array, number: Array) -> None:
        self.op = op
        self.factor = max(int(number.max(initial=0)), 0) + 2
        keys = tree * self.factor + number
        self.order = np.argsort(keys, kind="stable")
        self.keys = keys[self.order]
        if (self.keys[1:] == self.keys[:-1]).any():
            raise _fail(op, "two nodes of a tree have the same number", "nodes_nodeids that differ", "some that do not")

    def find(self, tree: Array, number: Array, where: str) -> Array:
        """Return the positions of nodes."""
        wanted = tree * self.factor + number
        at = np.searchsorted(self.keys, wanted)
        known = at < len(self.keys)
        known &= (number >= 0) & (number < self.factor)
        known[known] &= self.keys[at[known]] == wanted[known]
        if not known.all():
            first = int(np.flatnonzero(~known)[0])
            raise _fail(
                self.op, f"{where} names a node that is not there", "nodes of the same tree", f"node {number[first]}"
            )
        return self.order[at]


def _weights(aggregate: str, leaves: int, outputs: int, rows: Array, columns: Array, values: Array) -> Array:
    """Return the weights of leaves as a matrix; what a leaf says nothing about does not count."""
    kind = np.dtype(values.dtype)
    if aggregate in ("SUM", "AVERAGE"):
        weights = np.zeros((leaves, outputs), kind)
        np.add.at(weights, (rows, columns), values)
    else:
        neutral, extreme = (np.inf, np.minimum) if aggregate == "MIN" else (-np.inf, np.maximum)
        weights = np.full((leaves, outputs), neutral, kind)
        extreme.at(weights, (rows, columns), values)
    return weights


def _finished(
    op: str, feature: Array, threshold: Array, modes: Array, missing: Array, children: Array, leaves: Array,
    roots: Array, weights: Array, aggregate: str, transform: str, base: Array, members: Mapping[int, Array], *,
    only: int = -1, positive: bool = False,
) -> Ensemble:  # fmt: skip
    """Bring nodes into order, and all comparisons into one form."""
    if len(feature) and feature.min() < 0:
        raise _fail(op, "nodes_featureids out of range", "0 or more", feature.min())
    if len(base) not in (0, weights.shape[1]) and not (only == 0 and len(base) == 1):
        raise _fail(op, "base values do not fit", f"none or {weights.shape[1]}", len(base))
    tree, level = _levels(op, children, roots)
    if op != "TreeEnsemble" and (tree < 0).any():
        raise _fail(op, "nodes are not trees", "every node below a root", f"{(tree < 0).sum()} nodes below none")
    reached = np.flatnonzero(tree >= 0)
    order = reached[np.lexsort((level[reached], tree[reached]))]
    table = _Table(threshold.dtype)
    first = np.zeros(len(feature), np.int64)
    kinds = modes[order]
    counts = np.where((kinds == _EQ) | (kinds == _NEQ), 2, 1)
    for i in np.flatnonzero(kinds == _MEMBER).tolist():
        counts[i] = max(2 * len(members[int(order[i])]), 1)
    starts = np.cumsum(counts) - counts
    first[order] = starts
    size = int(counts.sum())
    table.make(size, order, starts, feature, threshold, modes, missing, children, leaves, first, members)
    depths = np.zeros(len(roots), np.int64)
    extra = counts - 1
    np.maximum.at(depths, tree[order], level[order] + _extra_above(order, children, extra))
    base, mirrored = np.resize(base, weights.shape[1]).astype(weights.dtype), only == 0 and len(base) < 2
    return Ensemble(
        table.feature.astype(np.int32), table.threshold, table.children.astype(np.int32), table.missing,
        table.leaf.astype(np.int32), weights, first[roots].astype(np.int32), depths.astype(np.int32), aggregate,
        transform, base, only, mirrored, positive,
    )  # fmt: skip


def _extra_above(order: Array, children: Array, extra: Array) -> Array:
    """Return by how much longer the way to each node is because nodes above it have become several."""
    above = np.zeros(len(children), np.int64)
    if extra.any():
        for i, node in enumerate(order.tolist()):
            for child in children[node].tolist():
                if child >= 0:
                    above[child] = above[node] + extra[i]
    return above[order]


def _levels(op: str, children: Array, roots: Array) -> tuple[Array, Array]:
    """Return tree and level of every node that is reached from a root, -1 for others; refuse what are no trees."""
    tree, level = np.full(len(children), -1, np.int64), np.zeros(len(children), np.int64)
    frontier, owner, depth = roots, np.arange(len(roots)), 0
    while len(frontier):
        is_new = not (tree[frontier] >= 0).any()
        level[frontier] = places = np.arange(len(frontier))
        if not is_new or (level[frontier] != places).any():
            raise _fail(
                op, "nodes are not trees", "one way to every node", "a node that several ways lead to, or a cycle"
            )
        tree[frontier], level[frontier] = owner, depth
        below = children[frontier]
        same = below[:, 0] == below[:, 1]  # how a tree of one leaf is written
        pairs = np.stack([below[:, 0], np.where(same, -1, below[:, 1])], 1).reshape(-1)
        owner = np.repeat(owner, 2)[pairs >= 0]
        frontier, depth = pairs[pairs >= 0], depth + 1
    return tree, level


class _Table:
    """The nodes of an ensemble as they are filled in."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)

    def make(
        self, size: int, order: Array, starts: Array, feature: Array, threshold: Array, modes: Array, missing: Array,
        children: Array, leaves: Array, first: Array, members: Mapping[int, Array],
    ) -> None:  # fmt: skip
        """Write every node at its place: most as one comparison, equality as two, membership as two per member."""
        mode = modes[order]
        self.feature = np.zeros(size, np.int64)
        self.threshold = np.zeros(size, self.dtype)
        self.missing = np.zeros(size, bool)
        self.leaf = np.full(size, -1, np.int64)
        self.children = np.repeat(np.arange(size)[:, None], 2, 1)
        is_leaf = mode == _LEAF
        self.leaf[starts[is_leaf]] = leaves[order[is_leaf]]
        inner = ~is_leaf
        nodes, at, kinds = order[inner], starts[inner], mode[inner]
        self.feature[at] = feature[nodes]
        to = first[children[nodes]]
        flipped = (kinds == _GTE) | (kinds == _GT)
        strict = (kinds == _LT) | (kinds == _GTE)
        self.threshold[at] = np.where(strict, self._below(threshold[nodes]), threshold[nodes])
        self.children[at] = np.where(flipped[:, None], to[:, ::-1], to)
        self.missing[at] = missing[nodes] ^ flipped
        for i in np.flatnonzero((kinds == _EQ) | (kinds == _NEQ) | (kinds == _MEMBER)).tolist():
            node = int(nodes[i])
            values = members[node] if kinds[i] == _MEMBER else threshold[node : node + 1]
            yes, no = to[i].tolist() if kinds[i] != _NEQ else to[i][::-1].tolist()
            self._equal(int(at[i]), int(feature[node]), values, yes, no, bool(missing[node]) and kinds[i] != _NEQ)

    def _equal(self, at: int, feature: int, values: Array, yes: int, no: int, missing: bool) -> None:
        """Write pairs of nodes: what is at most a value and not below it is equal to it; NaN is equal to nothing."""
        if not len(values):
            self.feature[at], self.threshold[at], self.children[at] = feature, np.nan, (yes, no)
        below = self._below(np.asarray(values, self.dtype))
        for i, (value, under) in enumerate(zip(values, below, strict=True)):
            place, last = at + 2 * i, i == len(values) - 1
            other = no if last else place + 2
            self.feature[place : place + 2] = feature
            self.threshold[place : place + 2] = value, under
            self.children[place] = place + 1, other
            self.children[place + 1] = other, yes
            self.missing[place : place + 2] = missing, False

    def _below(self, values: Array) -> Array:
        """Return the numbers just below; below the least there is none, and NaN compares with nothing."""
        values = np.asarray(values, self.dtype)
        lower = np.nextafter(values, np.array(-np.inf, self.dtype))
        return np.where(values == -np.inf, np.array(np.nan, self.dtype), lower)


# Results ---------------------------------------------------------------------------------------------------------


def transformed(scores: Array, transform: str) -> Array:
    """Apply a transform to the scores of every row, [rows, outputs]."""
    if transform == "LOGISTIC":
        return _logistic(scores)
    if transform == "PROBIT":
        return _probit(scores)
    if transform in ("SOFTMAX", "SOFTMAX_ZERO"):
        powers = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        if transform == "SOFTMAX_ZERO":
            powers = np.where(np.abs(scores) > 1e-7, powers, 0)
        total = powers.sum(axis=1, keepdims=True)
        shares: Array = powers / np.where(total == 0, 1, total)
        return shares
    return scores


def _logistic(x: Array) -> Array:
    part = 1 / (1 + np.exp(-np.abs(x)))
    return np.where(x < 0, 1 - part, part).astype(x.dtype)


def _probit(x: Array) -> Array:
    """Return the quantile of the normal distribution by the approximation of Winitzki, which onnxruntime uses too."""
    y = 2 * x - 1
    log = np.log((1 - y) * (1 + y))
    v = 2 / (np.pi * 0.147) + 0.5 * log
    quantile: Array = (np.sqrt(2) * np.sign(y) * np.sqrt(-v + np.sqrt(v * v - log / 0.147))).astype(x.dtype)
    return quantile


def finished(ensemble: Ensemble, scores: Array) -> tuple[Array, Array]:
    """Return the class of each row, by number, and the transformed scores.

    If the score of the first class speaks for the second, the first one's is what is missing from 1, or of the other
    sign.

    Args:
        ensemble: The trees.
        scores: Aggregated weights, [rows, outputs].
    """
    only, limit = ensemble.only, 0.5 if ensemble.positive else 0.0
    if ensemble.mirrored:
        score = scores[:, 0]
        pair = np.stack([-score if ensemble.transform == "LOGISTIC" or not ensemble.positive else 1 - score, score], 1)
        return (score > limit).astype(np.int64), _logistic(pair) if ensemble.transform == "LOGISTIC" else pair
    chosen = scores[:, only] > limit if only >= 0 else scores.argmax(axis=1)
    return chosen.astype(np.int64), transformed(scores, ensemble.transform)


def _rows(x: Array) -> Array:
    return x.reshape(1, -1) if x.ndim == 1 else x


def _regress(op: str, x: Array, attrs: Mapping[str, Any]) -> Array:
    ensemble = ensemble_of(op, attrs, x.dtype)
    return transformed(ensemble.scores(_rows(x)), ensemble.target_transform)


def row_sizes(facts: Facts) -> tuple[Size | None, Size | None]:
    """Return how many rows and columns the first operand has, which may be one row."""
    shape = facts.shape(0)
    if shape is None:
        return None, None
    facts.require(len(shape) in (1, 2), "the rows have the wrong rank", expected="[rows, columns], or one row",
                  found=facts.shown(0))  # fmt: skip
    return (shape[0], shape[1]) if len(shape) > 1 else (1, shape[0])


def _walked_rows(facts: Facts) -> Size | None:
    """Return how many rows there are; demand the columns that nodes compare, beyond which there may be more."""
    rows, columns = row_sizes(facts)
    featureids = facts.attr("nodes_featureids", ())

    def make() -> int:
        modes = facts.attr("nodes_modes", ()) if facts.node.op != "TreeEnsemble" else ()  # whose leaves are no nodes
        features, leaves = np.asarray(featureids, np.int64), [mode in ("LEAF", b"LEAF") for mode in modes]
        compared = features[~np.array([*leaves[: len(features)], *[False] * (len(features) - len(leaves))], bool)]
        return int(compared.max()) + 1 if len(compared) else 1

    if columns is not None:
        facts.require_at_least(columns, _remembered(featureids, "columns", make), "the trees ask for more columns")
    return rows


@FAMILY.infer("TreeEnsemble", "TreeEnsembleRegressor", domain=_ML)
def _targets(facts: Facts) -> Results:
    dtype = facts.dtype(0) if facts.node.op == "TreeEnsemble" else "float32"
    return [facts.tensor(dtype, (_walked_rows(facts), int(facts.attr("n_targets", 1))))]


@FAMILY.infer("TreeEnsembleClassifier", domain=_ML)
def _classes(facts: Facts) -> Results:
    rows = _walked_rows(facts)
    texts = facts.attr("classlabels_strings")
    labels = texts or facts.attr("classlabels_int64s") or ()
    count = max(len(labels), max(facts.attr("class_ids") or (0,)) + 1)
    return [facts.tensor("string" if texts else "int64", (rows,)), facts.tensor("float32", (rows, count))]


@FAMILY.op("TreeEnsemble", domain=_ML, since=5)
def tree_ensemble(x: Array, **attrs: Any) -> Array:
    """Return what the leaves that each row reaches say, aggregated per target: [rows, targets] of x's type.

    Raises:
        ModelError: If the attributes describe no trees.
    """
    return _regress("TreeEnsemble", x, attrs).astype(x.dtype, copy=False)


@FAMILY.op("TreeEnsembleRegressor", domain=_ML)
def tree_ensemble_regressor(x: Array, **attrs: Any) -> Array:
    """Return what the leaves that each row reaches say, aggregated per target: float32 [rows, targets].

    Raises:
        ModelError: If the attributes describe no trees.
    """
    return _regress("TreeEnsembleRegressor", x, attrs).astype(np.float32, copy=False)


@FAMILY.op("TreeEnsembleClassifier", domain=_ML)
def tree_ensemble_classifier(x: Array, **attrs: Any) -> tuple[Array, Array]:
    """Return the label of each row, [rows], and the scores of all classes, float32 [rows, classes].

    Raises:
        ModelError: If the attributes describe no trees, or there are too few labels.
    """
    op = "TreeEnsembleClassifier"
    ensemble = ensemble_of(op, attrs, x.dtype)
    labels = class_labels(op, attrs, ensemble.outputs)
    chosen, scores = finished(ensemble, ensemble.scores(_rows(x)))
    return labels[chosen], scores.astype(np.float32, copy=False)


def class_labels(op: str, attrs: Mapping[str, Any], classes: int) -> Array:
    """Return the labels of classes, int64 or texts as objects.

    Raises:
        ModelError: If there are too few of them.
    """
    texts = attrs.get("classlabels_strings") or ()
    ints = attrs.get("classlabels_int64s", ())
    labels: Array = np.array(texts, object) if texts else np.asarray(ints, np.int64)
    if len(labels) < classes:
        raise _fail(op, "there are too few labels", f"{classes}", len(labels))
    return labels
