"""What runs inside other processes: programs, what a rank's Python does at its start, stand-ins for packages."""
