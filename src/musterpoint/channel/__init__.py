"""The connection to the other hosts that stays: bytes to messages and back, in sessions that survive a blip."""
