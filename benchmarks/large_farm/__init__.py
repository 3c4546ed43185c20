"""A large farm, made up in a store."""
