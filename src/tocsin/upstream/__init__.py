"""The only way out: clients of Hiro and Tenero over one guarded HTTP client."""
