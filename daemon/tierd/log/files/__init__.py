"""Contents of a log dir, by name: the disk, directories, segment files, and the text files of checkpoints."""
