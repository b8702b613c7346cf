"""All topics, in the order in which they hear of a host that left, and of a leader that is gone."""

from typing import Any

from musterpoint.core.channel.codec import kind_of
from musterpoint.core.channel.topic import Topic
from musterpoint.core.channel.topics import (
    attempts,
    consultations,
    data_points,
    ended_groups,
    quiet_hosts,
    raised_ranks,
    ready_roles,
    running_hosts,
    start_requests,
    whole_checkpoints,
)

TOPICS: tuple[Topic[Any], ...] = (
    start_requests.TOPIC,
    ended_groups.TOPIC,
    quiet_hosts.TOPIC,
    attempts.TOPIC,
    consultations.TOPIC,
    data_points.TOPIC,
    running_hosts.TOPIC,
    whole_checkpoints.TOPIC,
    raised_ranks.TOPIC,
    ready_roles.TOPIC,
)

FROM_WORKERS: dict[str, tuple[Topic[Any], type[Any]]] = {
    kind_of(message): (topic, message) for topic in TOPICS for message in topic.from_workers
}
"""Topic and type by the kind of a message."""
FROM_LEADER: dict[str, tuple[Topic[Any], type[Any]]] = {
    kind_of(message): (topic, message) for topic in TOPICS for message in topic.from_leader
}
