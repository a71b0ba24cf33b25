"""Steps of ``tierd check-config --online``, and the permissions that the object store has to grant."""
