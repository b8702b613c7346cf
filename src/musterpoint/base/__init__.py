"""What every room may use: options, errors, exit codes, the event loop, the console, masking of secrets."""
