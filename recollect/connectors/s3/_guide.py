"""What people read about S3, and the form of its metadata."""

from recollect.connectors.about import Field, Guide
from recollect.connectors.base import TAG_PATTERN

GUIDE = Guide(
    "Objects of a bucket, at Amazon or any service that speaks S3.",
    "a bucket and a key that may list and read it",
    (
        Field("bucket", "Bucket", "Only its name.", required=True, in_config=True),
        Field(
            "region",
            "Region",
            "Such as eu-central-1; auto for Cloudflare R2; others often us-east-1.",
            required=True,
            in_config=True,
        ),
        Field(
            "endpoint",
            "Endpoint",
            "For services other than Amazon.",
            kind="url",
            placeholder="https://minio.example.com",
            in_config=True,
        ),
        Field(
            "prefix",
            "Prefix",
            "Only keys that begin with it. “docs” takes docs-old/a.md too, “docs/” does not.",
            in_config=True,
        ),
        Field(
            TAG_PATTERN,
            "Tag from the key",
            "A pattern with one named group, which becomes a tag besides those below.",
            placeholder="^users/(?<userId>[^/]+)/",
        ),
        Field("accessKeyId", "Access key id", kind="secret", required=True, in_config=True),
        Field("secretAccessKey", "Secret access key", kind="secret", required=True, in_config=True),
    ),
    if_nothing="The bucket is empty, or no key begins with the prefix.",
)
