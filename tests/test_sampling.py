from __future__ import annotations

import pytest

from tests.sampling import MOST

SOME = MOST + 20 + 30 + 0 + 1 + MOST
"""So many of the tests below a plain run takes, of 122."""
CONFTEST = """
from tests import sampling

pytest_addoption = sampling.add_option
pytest_configure = sampling.settle
pytest_collection_modifyitems = sampling.leave_out
"""
TESTS = """
import unittest
import pytest

@pytest.mark.parametrize("n", range(30))
def test_table(n): pass

@pytest.mark.rows(20)
@pytest.mark.parametrize("n", range(30))
def test_more(n): pass

@pytest.mark.rows(None)
@pytest.mark.parametrize("n", range(30))
def test_whole(n): pass

@pytest.mark.long
def test_long(): pass

def test_short(): pass

class TestOld(unittest.TestCase): pass

for n in range(30): setattr(TestOld, f"test_{n}", lambda self: None)
"""


@pytest.fixture
def folder(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["long", "rows(number)"]\n')
    pytester.makepyfile(test_tables=TESTS)
    return pytester


def chosen(folder: pytest.Pytester, *arguments: str) -> set[str]:
    return {line for line in folder.runpytest_inprocess("--collect-only", "-q", *arguments).outlines if "::" in line}


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], SOME),
        (["--rows", "others"], 122 - SOME),
        (["--rows", "all"], 122),
        (["test_tables.py"], 122),
        (["test_tables.py", "--rows", "some"], SOME),
        (["-n", "1"], SOME),
        (["-n", "1", "test_tables.py"], 122),
        (["-n", "1", "--rows", "all", "--share", "1/99"], 122),
    ],
)
def test_a_plain_run_leaves_out_rows_and_long_tests(folder: pytest.Pytester, arguments, passed):
    assert folder.runpytest_inprocess("-q", *arguments).parseoutcomes()["passed"] == passed


def test_shares_are_together_what_a_plain_run_leaves_out(folder: pytest.Pytester):
    shares = [chosen(folder, "--rows", "others", "--share", f"{k}/3") for k in (1, 2, 3)]
    assert sum(map(len, shares)) == 122 - SOME
    assert all(shares)
    assert set().union(*shares) == chosen(folder, "--rows", "others")
    assert chosen(folder, "--rows", "some", "--share", "2/3") == chosen(folder) | shares[1]


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b"])
def test_what_is_no_share(folder: pytest.Pytester, text):
    folder.runpytest("--share", text).stderr.fnmatch_lines(["*expected K/N with 1 <= K <= N*"])


def test_new_rows_change_few_of_those_that_are_run(folder: pytest.Pytester):
    tables = []
    for count in (30, 31):
        folder.makepyfile(
            test_tables=f"import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_table(n): pass"
        )
        tables.append(chosen(folder))
    assert len(tables[0]) == len(tables[1]) == MOST
    assert len(tables[0] & tables[1]) >= MOST - 1
