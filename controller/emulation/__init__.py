"""A cluster of namespaces on one host: nodes with their own network, files, CPU quota and SSH server."""
