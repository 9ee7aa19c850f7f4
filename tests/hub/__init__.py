"""The Hub client against a Hub on the loopback."""
