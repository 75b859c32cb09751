"""Conducts one gate: plan -> drive -> load and observe -> evidence -> judge -> seal.

The only place where the rooms meet. It measures and writes down; it never judges by itself.
"""
