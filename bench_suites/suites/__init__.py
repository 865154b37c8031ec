"""The suites: tables of models, one row a model, and how each is built. Weights are random everywhere."""
