"""The Autotune tab: what every config costs."""
