"""One module per verb, or for close ones; a function named as the verb has its options as parameters."""
