"""Who leads which partition: the sources of leadership. None is an authority over data; the metadata store fences."""

from tierd.control.leadership import Leadership, LeadershipSource, Role
from tierd.control.static import StaticLeadership

__all__ = ["Leadership", "LeadershipSource", "Role", "StaticLeadership"]
