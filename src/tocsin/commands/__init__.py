"""The commands: their options, what they do, and how they print it. Each loads only the modules that it uses."""
