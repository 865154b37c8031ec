"""The tables of the survey, by family."""
