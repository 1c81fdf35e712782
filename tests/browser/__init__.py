"""Browser tests are a package, so that their browser ends with them (pytest scopes by package)."""
