"""The intermediate outputs: what the user's program leaves in ``output/intermediate`` goes to S3 while it trains."""
