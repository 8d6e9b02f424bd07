"""Who calls, and what they may: tokens, cookies, rights, and the headers that protect a browser."""
