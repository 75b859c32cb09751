"""A long run: windows, faults, canaries and whom they speak about. Pure."""
