"""Streaming load: what is asked of an engine, when, and what came back at which nanosecond."""
