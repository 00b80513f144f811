"""Child processes: finding the program, starting it, its pipes, and who ends what is left."""
