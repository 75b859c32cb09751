"""The real engine's role: start, cold, stop, installation; its servers are stand-ins here."""
