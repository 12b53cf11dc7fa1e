"""Wrappers of `ssh` and `sftp` that reach the nodes of a cluster from outside their network.

They enter the controller's network namespace, from which alone nodes are reachable, and behave as OpenSSH does towards
machines of a lab. What the caller gives, as options or in `~/.ssh/config`, comes before what the cluster gives: its
login key and the host keys of its nodes. A caller who names another key has that key only, so that wrong keys fail.
Jump hosts have the cluster's settings, too.
"""

import shlex
from pathlib import Path

KNOWN_HOSTS = "known_hosts"
CONFIG, CONFIG_WITHOUT_KEY = "ssh_config", "ssh_config_without_key"

_LETTERS = {
    "ssh": "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:PQ:R:S:TVw:W:XYy",
    "sftp": "1246AafhNpqrvCc:D:i:l:o:s:S:b:B:F:J:P:R:X:",
}
"""Program -> its options, for `getopts`; a colon follows those with an argument."""

FILES = (*_LETTERS, KNOWN_HOSTS, CONFIG, CONFIG_WITHOUT_KEY)
"""All files that are written here."""

_CONFIG = """\
Include ~/.ssh/config
Host *
  UserKnownHostsFile "{known_hosts}"
  IdentitiesOnly yes
{identity}  Include /etc/ssh/ssh_config
"""

# Connections are shared by those who log in alike only: by user, address and port, and with the same key and jump host.
# Nodes of other clusters have the same addresses, so that the folder of the cluster is part of the name; Ansible names
# connections by address only, and its name therefore comes second. Options are read as far as the host's name.
_WRAPPER = """\
#!/bin/sh
folder={folder}
key={key}
config=$folder/{config}
others=
shared="$folder/%r@%h:%p"
while getopts ":{letters}" option; do
  case "$option$OPTARG" in
    "i$key" | o[Ii]dentity[Ff]ile[=\\ ]"$key" | o[Ii]dentity[Ff]ile[=\\ ]\\""$key"\\") ;;
    i* | o[Ii]dentity[Ff]ile*) config=$folder/{config_without_key} others="$others $OPTARG" ;;
    F* | J* | o[Pp]roxy* | o[Ii]dentit* | o[Pp]referred* | o[Pp]ubkey*) others="$others $OPTARG" ;;
    o[Cc]ontrol[Pp]ath[=\\ ]none) shared=none ;;
  esac
done
if [ -n "$others" ] && [ "$shared" != none ]; then
  digest=$(printf %s "$others" | cksum)
  shared="$shared-${{digest%% *}}"
fi
# A socket's path has 108 bytes at most; the names of user and host, and what ssh appends, take up to 33.
[ ${{#shared}} -le 75 ] || shared=none
exec nsenter --net={network} {name} -F "$config" -o "ControlPath=\\"$shared\\"" "$@"
"""


def write_programs(folder: Path, key: Path, known_hosts: str, network: Path) -> None:
    """Write the wrappers, and the files that they need.

    Args:
        folder: folder of the cluster.
        key: login key of its nodes.
        known_hosts: host keys of its nodes.
        network: file of the controller's network namespace.
    """
    (folder / KNOWN_HOSTS).write_text(known_hosts)
    for file, identity in ((CONFIG, f'  IdentityFile "{key}"\n'), (CONFIG_WITHOUT_KEY, "")):
        (folder / file).write_text(_CONFIG.format(known_hosts=folder / KNOWN_HOSTS, identity=identity))
    for name, letters in _LETTERS.items():
        script = folder / name
        script.write_text(
            _WRAPPER.format(
                folder=shlex.quote(str(folder)),
                key=shlex.quote(str(key)),
                config=CONFIG,
                config_without_key=CONFIG_WITHOUT_KEY,
                letters=letters,
                network=shlex.quote(str(network)),
                name=name,
            )
        )
        script.chmod(0o700)
