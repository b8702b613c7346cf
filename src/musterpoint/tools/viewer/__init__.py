"""A finished job, to look at: its timeline as tables, as one HTML page, and as a trace for Perfetto."""
