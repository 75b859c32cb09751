"""Tests of the evidence bundle."""
