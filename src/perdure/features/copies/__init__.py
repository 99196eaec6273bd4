"""Copies of whole stores: from one database to the other, backups, and putting a backup in a store's place."""
