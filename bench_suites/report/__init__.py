"""Stored results as a page, as Markdown, and as a comparison of two runs."""
