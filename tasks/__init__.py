"""What happens outside a request: sending, sweeping, and the mail providers."""
