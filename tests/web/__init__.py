"""A client of the web application, and what people read of its pages."""
