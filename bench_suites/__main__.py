"""`python -m bench_suites run|report|compare`: measure the suites, make a page of the results, compare two runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench_suites import run
from bench_suites.report import changes, page


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(prog="python -m bench_suites", description=__doc__)
    commands = whole.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="check and time the models of a suite", description=run.__doc__)
    run.add_arguments(runner)
    runner.set_defaults(main=run.main)
    reporter = commands.add_parser("report", help="a page and a table of stored results", description=page.__doc__)
    page.add_arguments(reporter)
    reporter.set_defaults(main=page.main)
    comparer = commands.add_parser("compare", help="what changed between two runs", description=changes.__doc__)
    changes.add_arguments(comparer)
    comparer.set_defaults(main=changes.main)
    return whole


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    args = parser().parse_args(argv)
    try:
        code: int = args.main(args)
    except ValueError as error:
        print(f"bench_suites: {error}", file=sys.stderr)
        return 2
    return code


if __name__ == "__main__":
    sys.exit(main())
