"""Nodes that are reached over SSH.

Nothing on a node listens for Millrace but its sshd. `settings` asks OpenSSH what the user's configuration says of a
host, `connection` opens and keeps one connection per node, `files` moves files over it. `keeper` runs on the node as
long as the campaign does; `keeping` is the controller's end of it. `transport` is a node as a run sees it, `backend`
all nodes of a campaign, `execute` the verb `millrace exec`.
"""
