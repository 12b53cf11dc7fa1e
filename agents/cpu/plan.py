"""What a wish would change on a host, and what of it is impossible. Nothing is written."""

from dataclasses import replace

from agents.cpu import driver, epp, frequency, governor, hotplug, smt, turbo
from agents.cpu.answer import CpuAnswer, Refusal, Setting
from agents.cpu.snapshot import Snapshot, boot_id
from agents.cpu.step import Feature, Step, View, look
from agents.cpu.topology import with_switched
from agents.cpu.wish import CpuRequest
from agents.host_files import HostFiles

FEATURES: tuple[Feature, ...] = (driver, smt, hotplug, turbo, governor, frequency, epp)
"""In the order in which they are set: each may change what the later ones find."""

INITIAL_NAMESPACES = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
"""Numbers that the kernel gives to the namespaces of the host itself (Linux, include/uapi/linux/nsfs.h)."""

AS_ROOT = "set once, by provisioning; or by agents that are root (millrace_user: root)"


def plan(wish: CpuRequest, host: HostFiles, before: Snapshot | None = None) -> CpuAnswer:
    """Check a wish against a host, and predict what would be written.

    Policies of CPUs that would have to be turned on first are not there yet, so that they are not predicted.

    Args:
        wish: what is wanted.
        host: the host.
        before: how it was found, when something has been set since; it knows the cores that are off.
    """
    view = look(host, before.cores if before else ())
    refused = tuple(impossible(wish, view))
    closed = closed_to_us(host)
    settings: list[Setting] = []
    changed = False
    for feature in FEATURES:
        steps = feature.steps(wish, view) if not refused else []
        settings += [Setting(step.what, step.path, step.before, step.asked) for step in steps]
        changed = changed or not all(step.is_taken for step in steps)
        view = _after(view, steps)
    if closed and (changed or refused):
        # Files that are closed for this reason are not worth a line each.
        refused = (closed,)
    return CpuAnswer(changed and not refused, tuple(settings) if not refused else (), refused)


def impossible(wish: CpuRequest, view: View) -> list[Refusal]:
    """All that this host cannot do of a wish; who may not write is refused only where something is to be written."""
    refused: list[Refusal] = []
    for feature in FEATURES:
        steps = [step for step in feature.steps(wish, view) if not step.is_taken]
        finding = feature.probe(view.host)
        if finding.status != "denied":
            refused += feature.refusals(wish, view)
        elif steps:
            refused.append(Refusal(steps[0].what, steps[0].asked, AS_ROOT, finding.reason))
    return refused


def found(host: HostFiles) -> Snapshot:
    """Read everything that can be set, before anything is."""
    view = look(host)
    working = {policy.name for policy in view.policies}
    values: dict[str, str] = {}
    unreadable: list[str] = []
    for feature in FEATURES:
        for path in feature.paths(host):
            folder = path.split("/")[-2]
            if folder.startswith("policy") and folder not in working:
                continue
            try:
                values[path] = host.read(path)
            except OSError:
                unreadable.append(path)
    return Snapshot(boot_id(host), values, {}, tuple(unreadable), view.topology.cores)


def closed_to_us(host: HostFiles) -> Refusal | None:
    """Why CPUs cannot be set from here at all: `/sys` is read-only, or we are in a container."""
    if "ro" in _mount_of_sys(host)[1]:
        return Refusal("host", "CPU settings", "", "/sys is mounted read-only")
    if not is_kernels_own(host):
        return None
    for name, initial in INITIAL_NAMESPACES.items():
        try:
            ours = str((host.root / f"proc/self/ns/{name}").readlink())
        except OSError:
            continue
        if ours != initial:
            reason = f"this process is not in the host's own {name} namespace: a container must not set the host's CPUs"
            return Refusal("host", "CPU settings", "", reason)
    return None


def is_kernels_own(host: HostFiles) -> bool:
    """Whether `/sys` is the machine's own, and not a copy that a node has for itself."""
    return _mount_of_sys(host)[0] == "sysfs"


def _after(view: View, steps: list[Step]) -> View:
    """The view once these steps are taken, as far as CPUs go off."""
    switched = {
        int(step.path.split("/")[-2][3:]): step.write == hotplug.ON for step in steps if step.path.endswith("/online")
    }
    if any(step.path == smt.CONTROL and step.write == "off" for step in steps):
        switched |= dict.fromkeys(smt.siblings(view.topology), False)
    online = with_switched(view.topology, switched)
    policies = tuple(policy for policy in view.policies if online.intersection(policy.cpus))
    return View(view.host, replace(view.topology, online=online), policies)


def _mount_of_sys(host: HostFiles) -> tuple[str, list[str]]:
    """Kind and options of what is mounted at /sys; of several the last, which covers the others."""
    kind, options = "", list[str]()
    for line in (host.read_if_there("proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[1] in {"/sys", "/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu"}:
            kind, options = fields[2], fields[3].split(",")
    return kind, options
