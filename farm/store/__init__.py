"""Everything SQL: tables, migrations, and what is read and written."""
