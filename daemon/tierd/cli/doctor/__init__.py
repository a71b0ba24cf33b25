"""Examination of ``tierd doctor``: probes collect facts, rules make findings, a page or a bundle shows them."""
