"""Hosts other than this one: agents over pipes, and two real SSH servers on loopback."""
