"""The pages for people: small pure renderers, values in, HTML text out, and the routes that answer with them.

Every text that is not ``Html`` is escaped when it becomes part of a page (``markup.py``), and no page has a script.
"""
