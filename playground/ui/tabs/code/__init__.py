"""The Code tab: what the compiler made of each line."""
