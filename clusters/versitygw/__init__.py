"""VersityGW, an object store on a folder: one server, S3's protocol, and the buckets."""
