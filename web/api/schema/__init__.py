"""The API as types, and the document that is made of them."""
