"""Roles of replicas: announcements of leaders, the tasks of each role, and the tasks of the whole broker."""
