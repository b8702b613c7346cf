"""What looks at jobs: checks before one, timelines after one, and the pages of plan and environment."""
