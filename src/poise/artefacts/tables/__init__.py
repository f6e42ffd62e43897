"""Tables: each function returns a :class:`poise.artefacts.tables.table.Table`."""
