from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [
        ([], 8 + 20 + 30 + 8 + 0 + 1),
        (["--rows", "others"], 22 + 10 + 0 + 22 + 1 + 0),
        (["--rows", "all"], 122),
        (["test_tables.py"], 122),
        (["test_tables.py", "--rows", "some"], 67),
        (["-n", "1"], 67),
        (["-n", "1", "test_tables.py"], 122),
    ],
)
def test_a_plain_run_leaves_out_rows_and_long_tests(pytester: pytest.Pytester, arguments, passed):
    pytester.makeconftest(CONFTEST)
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nmarkers = ["long", "rows(number)"]\n')
    pytester.makepyfile(test_tables=TESTS)
    result = pytester.runpytest_inprocess("-q", *arguments)
    assert result.parseoutcomes()["passed"] == passed


def test_new_rows_change_few_of_those_that_are_run(pytester: pytest.Pytester):
    pytester.makeconftest(CONFTEST)
    chosen = []
    for count in (30, 31):
        pytester.makepyfile(
            test_tables=f"import pytest\n@pytest.mark.parametrize('n', range({count}))\ndef test_table(n): pass"
        )
        lines = pytester.runpytest_inprocess("--collect-only", "-q").outlines
        chosen.append({line for line in lines if "::" in line})
    assert len(chosen[0]) == len(chosen[1]) == 8
    assert len(chosen[0] & chosen[1]) >= 7
