"""The database: tables, migrations and all queries."""
