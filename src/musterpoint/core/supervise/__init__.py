"""A launch plan in, an outcome out: start it, stream it, stop it, reap it. Of frameworks it knows MPI's daemons."""
