"""Matrix products and attention against libraries and what the machine can do: a pytest-benchmark suite."""
