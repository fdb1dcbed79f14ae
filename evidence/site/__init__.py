"""The site: a folder of pages that need no server and load nothing (``evidence.site.write``)."""
