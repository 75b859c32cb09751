"""Tests of observation."""
