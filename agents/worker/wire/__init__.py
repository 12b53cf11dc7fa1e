"""Bytes between workers: encoding, frames, handshake, links and the mesh of connections."""
