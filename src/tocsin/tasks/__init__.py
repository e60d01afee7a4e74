"""One file per job of the object."""
