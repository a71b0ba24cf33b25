"""The Spark pipeline of one engine, and the verbs of runs and of requests to erase keys."""
