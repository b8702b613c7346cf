"""What features say between hosts: one file each, listed in :mod:`musterpoint.core.channel.topic_table`."""
