"""What the tests of objects need: virtual time, a log that can be read, files, processes to kill."""
