"""kvgate: gated acceptance testing for KV cache appliances."""

__version__ = "0.1.0"
