"""What Cloudflare has beside objects and stores: requests, fetch and logs."""
