"""SSH backend: nodes that are reached over SSH.

A node needs no server other than sshd. `settings` reads the user's OpenSSH configuration of a host, `connection` holds
one connection per node, `program` runs commands and `files` copies files over it. `node_lease_daemon` runs on the node
during the campaign; `node_lease` is its client. `backend` is the backend of a campaign.
"""
