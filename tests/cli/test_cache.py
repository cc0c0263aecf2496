from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import tinycomp
from tests.cli.conftest import Call
from tinycomp.cli import exits
from tinycomp.data import digits_model
from tinycomp.runtime.cache import BlobCache, CCache, ModuleCache

DAY = 86_400


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CCache:
    """A cache with an entry of today and one that was last used 40 days ago."""
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "kept"))
    cache = CCache()
    cache.prepare()
    for key, region, age in (("a" * 64, "npu_0", 0), ("b" * 64, "npu_[bold]1", 40 * DAY)):
        cache.store(key, region.encode(), "npu", region)
        os.utime(cache.folder / f"{key}.json", (time.time() - age,) * 2)
    return cache


@pytest.mark.parametrize("arguments", [(), ("list",)])
def test_list_shows_what_there_is(arguments: tuple[str, ...], call: Call, cache: CCache) -> None:
    result = call("cache", *arguments)
    assert result.code == exits.OK
    assert str(cache.folder) in result.out.replace("\n", "")
    for cell in ("a" * 12, "b" * 12, "npu_0", "npu_[bold]1", "just now", "40 d ago"):
        assert cell in result.out


def test_list_as_json(call: Call, cache: CCache) -> None:
    data = call("cache", "list", "--json").json
    assert data["folders"] == {kind: str(cache.folder.parent / kind) for kind in ("c", "blobs", "modules")}
    assert {e["kind"] for e in data["entries"]} == {"c"}
    assert [(e["key"][0], e["target"], e["region"], e["bytes"]) for e in data["entries"]] == [
        ("a", "npu", "npu_0", 5),
        ("b", "npu", "npu_[bold]1", 11),
    ]
    assert data["entries"][1]["age_seconds"] == pytest.approx(40 * DAY, abs=60)
    assert data["bytes"] == 16


@pytest.mark.parametrize(
    ("arguments", "removed"),
    [((), "b"), (("--older-than", "39"), "b"), (("--older-than", "41"), ""), (("--all",), "ab")],
)
def test_prune_removes_what_was_not_used_for_long(
    arguments: tuple[str, ...], removed: str, call: Call, cache: CCache
) -> None:
    result = call("cache", "prune", *arguments, "--json")
    assert result.code == exits.OK
    assert "".join(e["key"][0] for e in result.json["entries"]) == removed
    assert result.json["kept"] == 2 - len(removed)
    assert "".join(e.key[0] for e in cache.entries()) == "".join(sorted(set("ab") - set(removed)))


def test_blobs_are_listed_and_pruned(call: Call, cache: CCache) -> None:
    blobs = BlobCache()
    blobs.prepare()
    blobs.store("c" * 64, b"blob", "npu", "npu_2")
    assert f"Blobs in {blobs.folder}" in call("cache").out
    assert ("blobs", "npu_2") in [(e["kind"], e["region"]) for e in call("cache", "--json").json["entries"]]
    assert call("cache", "prune", "--all", "--json").json["kept"] == 0
    assert blobs.entries() == []
    assert [*blobs.folder.iterdir()] == []


def test_prune_says_what_it_did(call: Call, cache: CCache) -> None:
    assert call("cache", "prune").out.startswith("Removed 1 of 2 entries from ")


def test_an_empty_cache(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path))
    result = call("cache", "list")
    assert result.code == exits.OK
    assert result.out.startswith("There is nothing in ")
    assert call("cache", "prune", "--json").json["entries"] == []


@pytest.mark.parametrize("action", ["list", "prune"])
def test_a_folder_that_others_may_write_to(action: str, call: Call, cache: CCache) -> None:
    cache.folder.chmod(0o777)
    result = call("cache", action)
    assert result.code == exits.USAGE
    assert "the cache cannot be used: others may write to" in result.error
    cache.folder.chmod(0o700)
    assert len(cache.entries()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lst",), 'Did you mean "list"?'),
        (("list", "--all"), "list shows everything"),
        (("prune", "--older-than", "-1"), "expected a number of days, found -1"),
        (("prune", "--older-than", "nan"), "expected a number of days, found nan"),
        (("prune", "--older-than", "1", "--all"), "not allowed with argument"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], message: str, call: Call, cache: CCache) -> None:
    result = call("cache", *arguments)
    assert result.code == exits.USAGE
    assert message in result.error
    assert len(cache.entries()) == 2


def test_a_model_is_kept_and_found(call: Call, cache: CCache) -> None:
    modules = ModuleCache()
    assert modules.folder == cache.folder.parent / "modules"
    for command in (("run", "digits", "--random", "0"), ("bench", "digits", "--runs", "10")):
        assert call(*command, "--cache").code == exits.OK
        (entry,) = modules.entries()
        os.utime(modules.folder / f"{entry.key}.json", (0, 0))
        assert call(*command, "--cache").code == exits.OK
        (entry,) = modules.entries()
        assert entry.used > 0
    assert (entry.target, entry.region) == ("c", digits_model().name)
    assert digits_model().name in call("cache").out


def test_a_graph_in_text_is_not_kept(call: Call, cache: CCache, tmp_path: Path) -> None:
    path = tmp_path / "digits.tir"
    assert call("compile", "digits", "--emit", "tir", "-o", str(path)).code == exits.OK
    result = call("run", str(path), "--random", "0", "--cache")
    assert result.code == exits.USAGE
    assert "a graph in text is not kept" in result.err


def test_prune_down_to_a_size(call: Call, cache: CCache) -> None:
    modules = ModuleCache()
    modules.prepare()
    for age, key in ((3, "d" * 64), (2, "e" * 64), (1, "f" * 64)):
        modules.store(key, tinycomp.compile(digits_model(), threads=age).to_bytes(), "c", f"m{age}")
        os.utime(modules.folder / f"{key}.json", (time.time() - age,) * 2)
    size = max(entry.bytes for entry in modules.entries())
    result = call("cache", "prune", "--limit", str(2 * size), "--json")
    assert [(e["kind"], e["region"]) for e in result.json["entries"]] == [("modules", "m3")]
    assert result.json["kept"] == 2
    assert len(cache.entries()) == 2
    assert call("cache", "list", "--limit", "1").code == exits.USAGE
