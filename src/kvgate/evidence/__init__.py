"""Evidence: what was measured, kept so that every number can be recomputed."""
