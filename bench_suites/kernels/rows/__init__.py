"""The table: one file a family."""
