"""Composition of the restores: tier, catalogue and target are opened, planned and carried out, without a daemon."""
