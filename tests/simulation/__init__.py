"""Years of bad days in virtual time: the whole service in one process, driven by one seed. See docs/guarantees.md."""
