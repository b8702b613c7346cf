"""Called by other tools: toolkits in an image with musterpoint, whose jobs it runs, and pytest."""
