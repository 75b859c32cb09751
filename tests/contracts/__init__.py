"""The contracts that are shipped, and what the checker says of wrong ones."""
