"""Room-to-Room: instructions followed on the navigation graphs of real houses."""
