"""The history of the schema, one file a step; `farm.store.schema` runs them."""
