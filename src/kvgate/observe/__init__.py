"""Observation: what engine, store and host say of themselves while a block runs."""
