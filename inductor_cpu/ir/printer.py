"""Readable text of every IR value: `show`."""

from inductor_cpu.ir import print_plan, print_program  # noqa: F401  # they register the text of their types
from inductor_cpu.ir.show import show

__all__ = ["show"]
