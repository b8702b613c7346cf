"""Programs of ours that run as processes of their own, started from their source text; and their registry."""
