"""Export of compiled models as C projects, see docs/export-c.md."""

from tinycomp.export_c.processors import PROCESSORS, Processor
from tinycomp.export_c.project import Project, to_c, to_c_within

__all__ = ["PROCESSORS", "Processor", "Project", "to_c", "to_c_within"]
