"""The commands of kvgate: what they print, how they end, and what they say to wrong input."""
