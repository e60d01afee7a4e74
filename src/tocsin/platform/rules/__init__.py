"""What both platforms take and refuse, in the same words, so that no class comes to lean on one of them."""
