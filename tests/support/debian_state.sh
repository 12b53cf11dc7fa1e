# What a Debian machine is like: all that provisioning may change, and what it must not.
systemctl list-unit-files --no-legend --no-pager | grep -v '^session-' | awk '{print "unit", $1, $2}'
systemctl list-units --type=service --state=running --no-legend --plain --no-pager | awk '{print "runs", $1}' | grep -v user@
cat /etc/passwd /etc/group /etc/shadow | sed 's/^/account /'
dpkg-query -W -f 'package ${Package} ${Version} ${db:Status-Status}\n'
for device in lo eth0 eth1; do
  for what in qdisc class filter; do tc $what show dev $device; done | sed "s/^/$device /"
  ip -details link show dev $device | grep -o 'gso_max_[a-z]* [0-9]*' | sed "s/^/$device /"
done
sysctl -a 2>/dev/null | grep -v -E '^(fs\.(dentry|inode|file-nr|quota)|kernel\.(random|ns_last|pty)|[a-z.]*_?fanotify[._]|vm\.[a-z]+_reserve)'
ls -d /sys/fs/cgroup/*/
systemctl show 'user-*.slice' user.slice -p CPUQuotaPerSecUSec -p MemoryMax | grep . | sort -u
grep -rs . /sys/devices/system/cpu/cpu*/online /sys/devices/system/cpu/smt/control \
  /sys/devices/system/cpu/cpufreq/policy*/scaling_governor /sys/devices/system/cpu/cpufreq/policy*/scaling_m??_freq
find /etc /opt /usr/local /var/lib /var/cache /root /home /srv -xdev \
  \( -path '/var/lib/dpkg/*' -o -path '/var/lib/apt/*' -o -path '/var/lib/systemd/*' -o -path '/var/lib/ucf/*' -o -path '/var/cache/*/*' \
  -o -name .ansible -o -name '.sudo_as_admin*' \) -prune -o -printf 'file %p %y %m %u:%g %l\n'
find /etc -xdev -type f ! -name '*-' -exec sha256sum {} +
