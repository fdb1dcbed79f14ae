"""The site: a folder of pages that need no server and load nothing
(``lockbench.evidence.site.write``)."""
