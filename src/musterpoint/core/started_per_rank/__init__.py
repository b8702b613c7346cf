"""Where the platform has started an entry point for each rank: those of a host meet, and one of them leads."""
