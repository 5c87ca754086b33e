"""How fast an engine could be at best on a machine."""
