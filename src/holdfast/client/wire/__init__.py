"""What travels over HTTP between the service and whoever asks it: one shape for both ends."""
