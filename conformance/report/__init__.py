"""How a run is told: on the terminal, and in files."""
