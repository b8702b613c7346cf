"""Doors for other toolkits: what their settings may name in an image that has both."""
