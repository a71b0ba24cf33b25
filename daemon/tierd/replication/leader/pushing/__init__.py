"""The pushes of a leader: sessions in slots, pushers that send requests to peers, and the push manager over both."""
