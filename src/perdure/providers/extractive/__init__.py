"""What people say of themselves in English and Chinese, read by patterns: `language` and `facts`, then `statements`."""
