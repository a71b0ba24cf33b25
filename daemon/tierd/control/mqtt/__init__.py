"""The control plane over MQTT v5: presence, announcements of leaders, and requests to peers; never authority."""
