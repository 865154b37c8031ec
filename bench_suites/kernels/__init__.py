"""Loop nests taken from models, timed against stock Inductor's kernels and against the machine's bandwidth.

`rows/` is the table, `bench_kernels.py` the benchmark (pytest-benchmark, `make bench-kernels`), `report.py` its page.
"""
