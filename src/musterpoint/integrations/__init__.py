"""What other toolkits call in an image that has musterpoint too, so that it runs their jobs."""
