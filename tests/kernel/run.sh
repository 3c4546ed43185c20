#!/usr/bin/env bash
# Runs the tests of the emulated network on Debian's kernel, which has netem, in a guest of QEMU.
# The guest's root is this machine's own, read-only, under a file system in memory: the checkout,
# its .venv and all programs are the same. Needs root and Debian's apt-get. `make kernel` runs it.
#
# The kernel's package and what is made of it stay in KERNEL_CACHE, by default
# ~/.cache/benchfarm-kernel; about 600 MB.
#
# With KVM the guest has two processors in real time, but only where a trial boot succeeds: a
# /dev/kvm that is there may hang. Otherwise it has one emulated processor whose clock counts
# instructions, so that figures do not depend on how busy this machine is. KERNEL_KVM=no
# leaves KVM alone.
#
# TESTS="FILE ..." runs other tests. The exit status is pytest's.
set -euo pipefail

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${KERNEL_CACHE:-$HOME/.cache/benchfarm-kernel}
PYTHON=$PROJECT/.venv/bin/python
LIMIT_S=${KERNEL_LIMIT_S:-3600}
TESTS=${TESTS:-tests/kernel tests/integration/worker_agent/network/emulators/test_tc_netem.py tests/integration/worker_agent/network/test_undo.py tests/integration/worker_agent/network/test_port_gate.py}
PACKAGES=(qemu-system-x86 busybox-static kmod cpio iproute2 nftables util-linux iputils-ping)
MODULES="veth bridge dummy sch_htb sch_tbf sch_netem cls_u32 nf_tables nft_reject_inet"

step() { printf '== %s (%d s)\n' "$*" "$SECONDS"; }

# In the guest: the settings are those that the host has written.
if [ "${1:-}" = --inside ]; then
    # shellcheck disable=SC1091
    . /guest-out/settings
    # shellcheck disable=SC2086
    modprobe -a $MODULES || exit 1
    cd "$PROJECT" || exit 1
    unset PYTHONDONTWRITEBYTECODE
    export PYTHONPYCACHEPREFIX=$CACHE/bytecode PYTHONUNBUFFERED=1 KERNEL_GUEST=1
    status=0
    # shellcheck disable=SC2086
    "$PYTHON" -m pytest -p no:cacheprovider -q -rs -o timeout=900 --durations=10 $TESTS || status=$?
    if dmesg | grep quantum; then
        echo "the kernel's log is not to warn of a quantum"
        status=1
    fi
    exit $status
fi

install_packages() {
    local package missing=()
    for package in "${PACKAGES[@]}"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq -o DPkg::Lock::Timeout=120 update
    apt-get -qq -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Sets RELEASE, ROOTS (where the package's files are) and KERNEL.
prepare_kernel() {
    local package
    package=$(apt-cache depends linux-image-amd64 | awk '/Depends:/{print $2; exit}')
    [ -n "$package" ] || { echo "apt-cache knows no kernel: run apt-get update" >&2; exit 1; }
    RELEASE=${package#linux-image-}
    ROOTS=$CACHE/$RELEASE
    KERNEL=$ROOTS/boot/vmlinuz-$RELEASE
    [ -e "$ROOTS/whole" ] && return
    rm -rf "$ROOTS"
    mkdir -p "$ROOTS"
    (
        cd "$ROOTS"
        apt-get -qq -o DPkg::Lock::Timeout=120 -o APT::Sandbox::User=root download "$package"
        dpkg-deb -x "$package"_*.deb .
        rm "$package"_*.deb
    )
    depmod -b "$ROOTS" "$RELEASE"
    touch "$ROOTS/whole"
}

# What mounts this machine's root, and then runs this script in it. Sets INITRD.
prepare_initramfs() {
    local root=$CACHE/initramfs number=0 module
    INITRD=$CACHE/initrd.cpio
    rm -rf "$root"
    mkdir -p "$root"/{bin,mods,proc,sys,dev,low,rw,new}
    cp "$(command -v busybox)" "$root/bin/busybox"
    while read -r module; do
        number=$((number + 1))
        cp "$module" "$(printf '%s/mods/%02d-%s' "$root" $number "$(basename "$module")")"
    done < <(for module in virtio_pci 9pnet_virtio 9p overlay; do
        modprobe -d "$ROOTS" -S "$RELEASE" --show-depends "$module"
    done | awk '$1 == "insmod" && !seen[$2]++ {print $2}')
    cat >"$root/init" <<'INIT'
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc; $B mount -t sysfs sys /sys; $B mount -t devtmpfs dev /dev
for word in $($B cat /proc/cmdline); do case $word in script=*) SCRIPT=${word#script=} ;; modules=*) MODULES=${word#modules=} ;; esac; done
echo "GUEST UP"
[ "$SCRIPT" ] || { echo o >/proc/sysrq-trigger; $B sleep 60; }
for m in /mods/*; do $B insmod $m; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /low
$B mount -t tmpfs -o size=80% tmpfs /rw; $B mkdir -p /rw/up /rw/work
$B mount -t overlay -o lowerdir=/low,upperdir=/rw/up,workdir=/rw/work overlay /new
for d in proc sys dev run guest-out usr/lib/modules; do $B mkdir -p /new/$d; done
$B mount -t proc proc /new/proc; $B mount -t sysfs sys /new/sys; $B mount -t devtmpfs dev /new/dev
$B mkdir -p /new/dev/pts /new/dev/shm; $B mount -t devpts devpts /new/dev/pts; $B mount -t tmpfs tmpfs /new/dev/shm
$B mount -t tmpfs tmpfs /new/run; $B mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
$B ln -s /proc/self/fd /new/dev/fd
$B mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=131072 out /new/guest-out
exec $B switch_root /new /bin/bash -c '
    export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb LANG=C.UTF-8
    ip link set lo up; hostname guest; mount --bind "$1" /lib/modules
    bash "$0" --inside >/guest-out/log 2>&1; echo $? >/guest-out/status
    sync; echo o >/proc/sysrq-trigger; sleep 60' "$SCRIPT" "$MODULES"
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc 2>/dev/null) >"$INITRD"
}

# boot LIMIT_S COMMAND_LINE OPTION...
boot() {
    local limit=$1 line=$2
    shift 2
    timeout "$limit" qemu-system-x86_64 "$@" -kernel "$KERNEL" -initrd "$INITRD" \
        -nographic -no-reboot -nic none -vga none -append "console=ttyS0 quiet panic=-1 mitigations=off nokaslr $line" </dev/null
}

kvm_works() {
    [ "${KERNEL_KVM:-yes}" = yes ] && [ -w /dev/kvm ] || return 1
    boot 20 "" -accel kvm -cpu host -m 256 2>/dev/null | grep -q 'GUEST UP'
}

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "make kernel: expected root and Debian's apt-get" >&2
    exit 1
fi
[ -x "$PYTHON" ] || { echo "make kernel: expected $PYTHON, which make creates" >&2; exit 1; }
step packages; install_packages
mkdir -p "$CACHE"
step kernel; prepare_kernel
prepare_initramfs
# Compiled here, since every process of the guest would do it anew, slowly.
step bytecode
PYTHONPYCACHEPREFIX=$CACHE/bytecode env -u PYTHONDONTWRITEBYTECODE "$PYTHON" -m compileall -q "$PROJECT"/{farm,worker_agent,benchfarm,tests} || true
# What the tests import comes from more than one folder.
mapfile -t imported < <("$PYTHON" -c '
import importlib.util as u
for n in "sqlalchemy redis celery kombu pyroute2 click psutil alembic jinja2 flask werkzeug numpy packaging pytest _pytest hypothesis cryptography pydantic".split():
    spec = u.find_spec(n)
    if spec and spec.submodule_search_locations: print(spec.submodule_search_locations[0])')
PYTHONPYCACHEPREFIX=$CACHE/bytecode env -u PYTHONDONTWRITEBYTECODE "$PYTHON" -m compileall -q "${imported[@]}" >/dev/null 2>&1 || true
if kvm_works; then
    step "guest, with KVM"
    machine=(-accel kvm -cpu host -smp 2)
else
    step "guest, with an emulated processor"
    machine=(-accel "tcg,thread=single" -cpu max -icount shift=1 -smp 1)
fi
OUT=$CACHE/out
rm -rf "$OUT"
mkdir -p "$OUT"
printf '%s=%q\n' PROJECT "$PROJECT" PYTHON "$PYTHON" CACHE "$CACHE" TESTS "$TESTS" MODULES "$MODULES" >"$OUT/settings"
boot "$LIMIT_S" "tsc=reliable script=$PROJECT/tests/kernel/run.sh modules=$ROOTS/lib/modules" "${machine[@]}" -m 3072 \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=root,mount_tag=root \
    -fsdev "local,id=out,path=$OUT,security_model=none,multidevs=remap" -device virtio-9p-pci,fsdev=out,mount_tag=out \
    >"$OUT/console" 2>&1 || true
cat "$OUT/log" 2>/dev/null || { tail -20 "$OUT/console"; echo "the guest said nothing"; exit 1; }
step over
exit "$(cat "$OUT/status" 2>/dev/null || echo 1)"
