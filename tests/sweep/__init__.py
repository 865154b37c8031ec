"""The operator sweep: PyTorch's own operator database, compiled with icpu and compared with eager."""
