"""The words of our mails, one module a version. A released version is never edited: see `v1`."""
