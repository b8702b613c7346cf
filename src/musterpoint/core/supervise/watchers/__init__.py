"""What looks on beside the ranks and tells the supervisor: one file each."""
