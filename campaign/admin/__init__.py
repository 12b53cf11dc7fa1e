"""Administration of clusters: playbooks, doctor, plug-in lists and calibration of nodes."""
