"""Evidence made for tests; nothing in it was measured."""
