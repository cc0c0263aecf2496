"""Check numbers: a graph before and after each pass, and every region against the numpy kernels."""

from tinycomp.checking.compare import SYMBOL_SIZE, Difference, compare, fitting_feeds, random_feeds
from tinycomp.checking.passes import NumericCheck
from tinycomp.checking.regions import RegionCheck, check_regions, compare_regions
from tinycomp.checking.reproduce import Reproducer

__all__ = [
    "SYMBOL_SIZE",
    "Difference",
    "NumericCheck",
    "RegionCheck",
    "Reproducer",
    "check_regions",
    "compare",
    "compare_regions",
    "fitting_feeds",
    "random_feeds",
]
