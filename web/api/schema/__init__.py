"""The API's types, and the OpenAPI document that is generated from them."""
