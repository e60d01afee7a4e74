"""The two platforms on which Tocsin runs: embedded on one machine, and Cloudflare."""
