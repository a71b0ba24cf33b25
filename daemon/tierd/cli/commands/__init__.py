"""One module per verb, each with a function of that name whose signature is the verb's options."""
