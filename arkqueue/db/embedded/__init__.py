"""The PostgreSQL server of one's own, in arkqueue's home folder: its programs (``programs``), who it runs as (``users``), its life (``server``)."""
