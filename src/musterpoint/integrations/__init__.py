"""Called by other toolkits in an image with musterpoint, so that it runs their jobs."""
