"""What importing and a first result take, as the benchmark tells it."""

from __future__ import annotations

from benchmarks import first_use


def test_a_program_is_clocked_with_its_imports() -> None:
    passed, spent, took = first_use.clocked("import colorsys\nassert MODEL == 'a'", ("a", "b"), packages=True)
    assert passed > 0
    assert spent > 0
    assert "colorsys" in took


def test_figures_are_minima_with_medians() -> None:
    text = first_use.table({"import x": [(0.3, 0.2), (0.1, 0.1), (0.2, 0.15)]})
    assert text.splitlines()[-1] == "| import x | 0.100 (0.200) | 0.100 (0.150) |"


def test_modules_are_added_up_by_package() -> None:
    text = first_use.packages({"a": 0.1, "a.b": 0.2, "c": 0.05})
    assert text.splitlines()[-2:] == ["| a | 0.300 | 2 |", "| c | 0.050 | 1 |"]
