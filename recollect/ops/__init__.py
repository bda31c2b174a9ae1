"""Care of the installation: what is stored comes in, repairs, backups and findings go out."""
