"""A launch plan in, an outcome out: start it, stream it, stop it, reap it. Knows no framework."""
