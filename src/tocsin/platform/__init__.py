"""The two places Tocsin runs: embedded on one machine, and on Cloudflare."""
