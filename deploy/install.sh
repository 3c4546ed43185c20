#!/usr/bin/env bash
# Installs, upgrades or removes a server or an agent of a farm, on Debian 12, Debian 13 or Ubuntu
# 24.04, with systemd. Run as root; what is there already is kept, so run it again to upgrade or to
# change a setting. `install.sh --help` says how.
set -euo pipefail
umask 022

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SOURCE=$(dirname "$HERE")
CURRENT=/opt/benchfarm # a link to one of:
RELEASES=/opt/benchfarm-releases
CONFIG=/etc/benchfarm
AUTHORITY=$CONFIG/authority # .pem, and .key on the server that made it
UNITS=/etc/systemd/system
REDIS_CONF=/etc/redis/benchfarm.conf
REDIS_CERTIFICATE=/etc/redis/benchfarm # .pem and .key
REDIS_ACL=/var/lib/redis/benchfarm.acl
REDIS_DATA=benchfarm # within /var/lib/redis
NVIDIA_DRIVER=/proc/driver/nvidia/version
# What CUDA 12, of TensorFlow 2.21, and CUDA 13, of PyTorch 2.13, need at least: the release notes of
# the CUDA toolkit, "minor version compatibility".
LEAST_DRIVER_OF_TENSORFLOW=525 LEAST_DRIVER_OF_TORCH=580
TORCH_OF_CPUS=https://download.pytorch.org/whl/cpu
OS_RELEASE=/etc/os-release
APT_WAIT_S=600 APT_LOOK_S=5 # how long others may keep it, and how often is looked
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

say() { printf 'install.sh: %s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}
wrong() {
    printf 'install.sh: %s (see install.sh --help)\n' "$*" >&2
    exit 2
}

usage() {
    cat <<'END'
install.sh server [--address ADDRESS] [--web ADDRESS] [--plaintext] [--database URL] [--broker URL] [options]
    Scheduler, collector and web server. Without URLs also Redis, which listens on loopback and on
    ADDRESS, where agents reach it, and PostgreSQL, both of the distribution. Beyond loopback Redis
    and the web server (--web) speak TLS, with certificates of an authority that is made here.
    --plaintext: without TLS, since the network up to the agents, and to you, is private.
install.sh agent --settings FILE [options]
install.sh agent --broker URL --id NAME (--key KEY | --key-file FILE) [--authority FILE] [options]
    An agent. FILE has the lines that `farm agent add NAME` prints on the server, among them the
    authority's certificate, and keeps them off the command line, where every user of the machine
    can read them.
install.sh wheels FOLDER [server] [agent | agent-gpu] [torch]
    Gather in FOLDER what --wheels needs, on a machine with the same Python 3.x and an index.
install.sh remove (server | agent) [--purge]
    Stop and remove the services. Settings and data stay, unless --purge; a database always does.

options:
    --wheels FOLDER      install Python packages from there alone, without an index
    --gpu (auto|yes|no)  whether an agent's TensorFlow and PyTorch are built for NVIDIA's GPUs, some
                         GB larger; auto: where a driver is loaded that is new enough
    --torch              PyTorch, too; later runs keep it
    --requirements FILE  what to install in the place of deploy/requirements-ROLE.txt
    --set NAME=VALUE     a setting of docs/settings.md; may be repeated
    --settings FILE      the same, a line each
END
}

# --- settings -----------------------------------------------------------------------------------

# Put a line NAME=VALUE into a file in the place of the one that sets NAME. The value comes on
# standard input or from a builtin, never by a command line that others can read.
set_value() {
    local file=$1 name=$2 value=$3 line found=""
    local new="$WORK/settings"
    (
        umask 077
        while IFS= read -r line || [ -n "$line" ]; do
            if [ "${line%%=*}" = "$name" ]; then
                [ -n "$found" ] || printf '%s=%s\n' "$name" "$value"
                found=yes
            else
                printf '%s\n' "$line"
            fi
        done <"$file" >"$new"
        [ -n "$found" ] || printf '%s=%s\n' "$name" "$value" >>"$new"
        # Written in place: owner and mode stay as they are.
        cat "$new" >"$file"
    )
}

value_of() {
    local line
    while IFS= read -r line; do
        if [ "${line%%=*}" = "$2" ]; then
            printf '%s\n' "${line#*=}"
            return
        fi
    done <"$1"
}

# Make the file from its example, if there is none, and put into it what was asked for.
write_settings() {
    local file=$CONFIG/$ROLE.env setting former
    install -d -m 0755 "$CONFIG"
    if [ ! -e "$file" ]; then
        # Whole or not at all: what is there is kept by the next run.
        install -m 0600 -o root -g root "$HERE/env/$ROLE.env.example" "$file.new"
        "first_settings_of_$ROLE" "$file.new"
        mv "$file.new" "$file"
    fi
    chmod 0600 "$file"
    former=$(value_of "$file" FARM_BROKER_URL)
    for setting in "${SETTINGS[@]}"; do
        set_value "$file" "${setting%%=*}" "${setting#*=}"
    done
    follow_broker "$file" "$former"
    if grep -q '^[^#]*CHANGE-ME' "$file"; then
        fail "$file: expected a value in the place of CHANGE-ME: $(grep -m1 '^[^#]*CHANGE-ME' "$file" | cut -d= -f1)"
    fi
}

is_given() {
    local setting
    for setting in "${SETTINGS[@]}"; do
        [ "${setting%%=*}" != "$1" ] || return 0
    done
    return 1
}

host_of() {
    local rest=${1#*://}
    rest=${rest##*@}
    printf '%s\n' "${rest%%[/?]*}"
}

# What was said of the broker before this one: who makes accounts there, and that it may be plain.
follow_broker() {
    local file=$1 former=$2 url
    url=$(value_of "$file" FARM_BROKER_URL)
    [ -n "$former" ] && [ "$url" != "$former" ] || return 0
    if [ "$(host_of "$url")" != "$(host_of "$former")" ] && [ -n "$(value_of "$file" FARM_BROKER_ADMIN_URL)" ] &&
        ! is_given FARM_BROKER_ADMIN_URL; then
        set_value "$file" FARM_BROKER_ADMIN_URL ""
        say "FARM_BROKER_ADMIN_URL named the former broker, and is empty now: with --set it makes agents' accounts at this one"
    fi
    case $url in rediss://*) is_given FARM_PLAINTEXT || forbid_plaintext "$file" broker ;; esac
}

read_settings_file() {
    local line within=""
    [ -r "$1" ] || wrong "--settings: expected a readable file, got $1"
    while IFS= read -r line || [ -n "$line" ]; do
        case $line in
        '# -----BEGIN CERTIFICATE-----') within=yes GIVEN_AUTHORITY+=${line#'# '}$'\n' ;;
        '# -----END CERTIFICATE-----') within="" GIVEN_AUTHORITY+=${line#'# '}$'\n' ;;
        '' | '#'*) [ -z "$within" ] || GIVEN_AUTHORITY+=${line#'# '}$'\n' ;;
        [A-Z]*=*) SETTINGS+=("$line") ;;
        *) wrong "--settings: expected lines NAME=VALUE, got ${line%%=*}" ;;
        esac
    done <"$1"
}

random_word() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

# --- packages -----------------------------------------------------------------------------------

# Have apt do something, as soon as others are done with it: a machine that has just booted upgrades
# itself. DPkg::Lock::Timeout alone waits for one of apt's locks, not for those of its lists and its
# archives. No step asks questions or restarts running services.
apt_get() {
    local since=$SECONDS told=""
    export DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=yes
    until apt-get -qq -o "DPkg::Lock::Timeout=$APT_WAIT_S" "$@" >/dev/null 2>"$WORK/apt"; do
        if ! grep -q '^E: .*/lock' "$WORK/apt" || [ $((SECONDS - since)) -ge "$APT_WAIT_S" ]; then
            cat "$WORK/apt" >&2
            return 1
        fi
        [ -n "$told" ] || say "waiting for another apt: $(grep -m 1 '^E: .*/lock' "$WORK/apt" | cut -c4-)"
        told=yes
        sleep "$APT_LOOK_S"
    done
}

# What /etc/os-release says of this system, such as its ID.
of_system() {
    # shellcheck source=/dev/null
    (. "$OS_RELEASE" && printf '%s\n' "${!1:-}") 2>/dev/null || true
}

apt_install() {
    local package missing=()
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    say "installing ${missing[*]}"
    # A mirror that is away may have been there before.
    apt_get update || true
    apt_get install -y --no-install-recommends "${missing[@]}" || {
        [ "$(of_system ID)" != ubuntu ] ||
            say "not installed: ${missing[*]}; Ubuntu has some of them in its component universe: add-apt-repository universe"
        return 1
    }
}

find_python() {
    local python
    for python in python3 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    fail "Python: expected 3.11, 3.12 or 3.13, got $(python3 --version 2>&1) of $(of_system PRETTY_NAME): take Debian 12, Debian 13 or" \
        "Ubuntu 24.04, or install one of them with its module venv"
}

# Debian and Ubuntu have Python's module that makes virtual environments in a package of its own.
own_venv() {
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || apt_install "${PYTHON##*/}-venv" ||
        fail "expected Python with its module venv: apt install ${PYTHON##*/}-venv"
}

# The driver's version, such as 580.65.06; nothing where none is loaded.
driver_version() {
    grep -m 1 -oE '[0-9]{3,}\.[0-9.]*[0-9]' "$NVIDIA_DRIVER" 2>/dev/null || true
}

# Whether a framework, such as TensorFlow, is installed as built for GPUs; says why, unless it was
# said on the command line.
is_for_gpus() {
    local name=$1 least=$2 driver
    case $GPU in yes) return 0 ;; no) return 1 ;; esac
    driver=$(driver_version)
    if [ -z "$driver" ]; then
        say "$name for processors: no driver of NVIDIA's is loaded (--gpu yes: it will be)"
    elif [ "$(uname -m)" != x86_64 ]; then
        say "$name for processors: that for GPUs was never tried on $(uname -m) (--gpu yes: take it)"
    elif [ "${driver%%.*}" -lt "$least" ]; then
        say "$name for processors: NVIDIA's driver is $driver, and that for GPUs needs $least or newer"
    else
        say "$name for GPUs: NVIDIA's driver is $driver"
        return 0
    fi
    return 1
}

# The list without what a framework needs on GPUs, and without the framework.
without_gpus() {
    awk '/^[^ #]/ { kept = $0 !~ /^(torch|triton|nvidia-|cuda-)/ } kept' "$1"
}

# Choose the lists of packages of the machine's roles, REQUIREMENTS, and whether TORCH comes from the
# index for processors, as TORCH_VERSION.
choose_requirements() {
    local role
    REQUIREMENTS=() TORCH_VERSION=""
    if [ -n "$OWN_REQUIREMENTS" ]; then
        [ -z "$TORCH" ] || wrong "--torch: expected no --requirements beside it: name torch there"
        REQUIREMENTS=("$OWN_REQUIREMENTS")
        return
    fi
    for role in "$@"; do
        if [ "$role" = agent ] && is_for_gpus TensorFlow "$LEAST_DRIVER_OF_TENSORFLOW"; then
            role=agent-gpu
        fi
        REQUIREMENTS+=("$HERE/requirements-$role.txt")
    done
    ! compgen -G "$CURRENT/lib/python3.*/site-packages/torch/version.py" >/dev/null || TORCH=yes
    [ -n "$TORCH" ] || return 0
    if is_for_gpus PyTorch "$LEAST_DRIVER_OF_TORCH"; then
        REQUIREMENTS+=("$HERE/requirements-torch.txt")
    else
        TORCH_VERSION=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' "$HERE/requirements-torch.txt")
        without_gpus "$HERE/requirements-torch.txt" >"$WORK/requirements-torch.txt"
        REQUIREMENTS+=("$WORK/requirements-torch.txt")
    fi
}

# What a release is made of, in one line; the same again makes no new one.
fingerprint() {
    {
        "$PYTHON" --version
        printf '%s\n' "${ROLES[@]}"
        cat "${REQUIREMENTS[@]}"
        printf '%s' "$TORCH_VERSION"
        if [ -n "$WHEELS" ] && compgen -G "$WHEELS/benchfarm-*.whl" >/dev/null; then
            cat "$WHEELS"/benchfarm-*.whl
        else
            cd "$SOURCE"
            find pyproject.toml farm worker_agent web benchfarm -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
        fi
    } | sha256sum | cut -c1-12
}

# Beside the running version, which uses its own files until it is restarted.
make_release() {
    local pip release file options=(--quiet --disable-pip-version-check --no-input)
    release=$RELEASES/$(fingerprint)
    if [ ! -e "$release/complete" ]; then
        say "installing into $release"
        rm -rf "$release"
        install -d -m 0755 "$RELEASES"
        "$PYTHON" -m venv "$release" || fail "could not make a virtual environment: apt install ${PYTHON##*/}-venv"
        pip=("$release/bin/python" -m pip install "${options[@]}")
        [ -z "$WHEELS" ] || pip+=(--no-index --find-links "$WHEELS")
        # pip refuses a package without a hash as soon as one of them has some.
        for file in "${REQUIREMENTS[@]}"; do
            "${pip[@]}" -r "$file"
        done
        # Without a hash: the builds of that index are others than those of PyPI, and not in our list.
        [ -z "$TORCH_VERSION" ] || "${pip[@]}" --no-deps --index-url "$TORCH_OF_CPUS" "torch==$TORCH_VERSION"
        if [ -n "$WHEELS" ] && compgen -G "$WHEELS/benchfarm-*.whl" >/dev/null; then
            "${pip[@]}" --no-deps "$WHEELS"/benchfarm-*.whl
        else
            "${pip[@]}" -r "$HERE/requirements-build.txt"
            "${pip[@]}" --no-deps --no-build-isolation "$SOURCE"
        fi
        touch "$release/complete"
    fi
    RELEASE=$release
}

point_to() {
    ln -sfn "$1" "$WORK/link"
    mv -T "$WORK/link" "$CURRENT" 2>/dev/null || {
        # A folder, from before releases were links.
        [ -L "$CURRENT" ] || mv "$CURRENT" "$RELEASES/before-$(date +%s)"
        ln -sfn "$1" "$CURRENT"
    }
}

# Keep the one before, to go back to by hand.
forget_old_releases() {
    local release
    for release in "$RELEASES"/*; do
        case $release in "$RELEASE" | "$FORMER") ;; *) rm -rf "$release" ;; esac
    done
}

gather_wheels() {
    local role
    # Debian's own Python has no pip.
    "$PYTHON" -m venv "$WORK/venv" || fail "could not make a virtual environment: apt install ${PYTHON##*/}-venv"
    install -d "$1"
    for role in "${@:2}"; do
        # Debian 12 has Python 3.11.2, and needs what 3.11.3 no longer does.
        sed "s/ ; python_full_version < '3\.11\.[0-9]*'//" "$HERE/requirements-$role.txt" >"$WORK/requirements"
        # All is named there with one version, so that nothing needs to be looked for.
        "$WORK/venv/bin/pip" download --quiet --no-deps --dest "$1" --only-binary :all: -r "$WORK/requirements"
    done
    rm -f "$1"/benchfarm-*.whl
    "$WORK/venv/bin/pip" install --quiet -r "$HERE/requirements-build.txt"
    "$WORK/venv/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$1" "$SOURCE"
    say "$1 has what --wheels needs for: ${*:2}"
}

# --- services -----------------------------------------------------------------------------------

services_of() {
    case $1 in
    server) echo farm-scheduler farm-collector farm-web ;;
    agent) echo farm-agent ;;
    esac
}

add_user() {
    id -u "$1" >/dev/null 2>&1 ||
        useradd --system --user-group --home-dir "$2" --no-create-home --shell /usr/sbin/nologin "$1"
}

install_units() {
    local service version
    version=$(systemctl --version | awk 'NR == 1 { print int($2) }')
    for service in $(services_of "$ROLE"); do
        install -m 0644 "$HERE/systemd/$service.service" "$UNITS/"
        if [ "$version" -ge 254 ]; then
            install -D -m 0644 "$HERE/systemd/back-off.conf" "$UNITS/$service.service.d/back-off.conf"
        fi
    done
    if [ "$ROLE" = server ]; then
        install -m 0644 "$HERE"/systemd/farm-prune.{service,timer} "$UNITS/"
    fi
    systemctl daemon-reload
}

# A service that says when it is up is waited for.
start_services() {
    local service
    for service in $(services_of "$ROLE"); do
        systemctl enable --quiet "$service"
        systemctl restart "$service" || {
            journalctl --no-pager -n 5 -u "$service" >&2 || true
            fail "$service did not start: journalctl -u $service"
        }
    done
}

# The command for people: as the farm's user, with the server's settings.
write_command() {
    cat >"$WORK/farm" <<'END'
#!/bin/sh
# The farm's command with the server's settings. Needs root; its files must be readable for benchfarm.
while IFS= read -r line; do
    case $line in '' | '#'*) ;; *=*) export "$line" ;; esac
done </etc/benchfarm/server.env || exit 1
exec setpriv --reuid=benchfarm --regid=benchfarm --init-groups --no-new-privs /opt/benchfarm/bin/farm "$@"
END
    install -m 0755 "$WORK/farm" /usr/local/bin/farm
}

# --- certificates -------------------------------------------------------------------------------

# An authority of this farm's own. A second one is never made, since no agent would trust it.
own_authority() {
    apt_install openssl
    cat >"$WORK/openssl" <<'END'
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
END
    [ ! -e "$AUTHORITY.key" ] || return 0
    (
        umask 077
        openssl req -config "$WORK/openssl" -extensions authority -x509 -newkey ec -nodes -sha256 \
            -pkeyopt ec_paramgen_curve:P-256 -days 7300 -subj "/CN=Benchfarm's authority of $(uname -n | cut -c1-39)" \
            -keyout "$WORK/authority.key" -out "$WORK/authority.pem" 2>"$WORK/said"
    ) || fail "openssl made no authority: $(tail -n 1 "$WORK/said")"
    install -m 0644 "$WORK/authority.pem" "$AUTHORITY.pem"
    install -m 0600 "$WORK/authority.key" "$AUTHORITY.key"
}

# Certify a server of these names and addresses: FILE.pem, and FILE.key for GROUP to read. One that
# is for the same and good for another year is kept.
certify() {
    local file=$1 group=$2 host names=""
    for host in "${@:3}"; do
        case $host in *:*) host=IP:$host ;; *[!0-9.]*) host=DNS:$host ;; *) host=IP:$host ;; esac
        case ,$names, in *",$host,"*) ;; *) names+=${names:+,}$host ;; esac
    done
    own_authority
    if [ -e "$file.key" ] && [ "$(head -n 1 "$file.pem")" = "# $names" ] &&
        openssl verify -CAfile "$AUTHORITY.pem" "$file.pem" >/dev/null 2>&1 &&
        openssl x509 -checkend 31536000 -noout -in "$file.pem" >/dev/null; then
        return 0
    fi
    cat >>"$WORK/openssl" <<END
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $names
END
    (
        umask 077
        openssl req -config "$WORK/openssl" -new -newkey ec -nodes -sha256 -pkeyopt ec_paramgen_curve:P-256 \
            -subj "/CN=Benchfarm's ${file##*/}" -keyout "$WORK/server.key" -out "$WORK/request"
        printf '# %s\n' "$names" >"$WORK/server.pem"
        openssl x509 -req -in "$WORK/request" -CA "$AUTHORITY.pem" -CAkey "$AUTHORITY.key" -sha256 -days 3650 \
            -set_serial "0x$(random_word | cut -c1-30)" -extfile "$WORK/openssl" -extensions server >>"$WORK/server.pem"
    ) 2>"$WORK/said" || fail "openssl made no certificate for $names: $(tail -n 1 "$WORK/said")"
    # A certificate without its key is made again by the next run.
    rm -f "$file.key"
    install -m 0644 "$WORK/server.pem" "$file.pem"
    install -m 0640 -g "$group" "$WORK/server.key" "$file.key"
    CERTIFIED=yes
}

# The authority that came with an agent's settings, where its broker's URL says that it is.
keep_given_authority() {
    local file=$CONFIG/agent.env url
    [ -n "$GIVEN_AUTHORITY" ] || return 0
    printf '%s' "$GIVEN_AUTHORITY" >"$WORK/given"
    if [ -e "$AUTHORITY.key" ] && ! cmp -s "$WORK/given" "$AUTHORITY.pem"; then
        fail "$AUTHORITY.pem: this machine's own farm has it, so that an agent of another farm needs another machine"
    fi
    install -m 0644 "$WORK/given" "$AUTHORITY.pem"
    url=$(value_of "$file" FARM_BROKER_URL)
    case $url in
    *[?\&]ssl_ca_certs=*\&*) url=${url%%ssl_ca_certs=*}ssl_ca_certs=$AUTHORITY.pem\&${url#*ssl_ca_certs=*&} ;;
    *[?\&]ssl_ca_certs=*) url=${url%%ssl_ca_certs=*}ssl_ca_certs=$AUTHORITY.pem ;;
    esac
    set_value "$file" FARM_BROKER_URL "$url"
}

# --- the server ---------------------------------------------------------------------------------

first_settings_of_server() {
    set_value "$1" FARM_API_TOKEN "$(random_word)"
    [ -n "$BROKER" ] || own_accounts "$1"
    [ -n "$DATABASE" ] || set_value "$1" FARM_DATABASE_URL "postgresql+psycopg:///benchfarm?host=/var/run/postgresql"
}

# Accounts at Redis with these passwords, by builtins alone: all can read a program's command line.
accounts_with() {
    local server=$1 admin=$2 line
    while IFS= read -r line || [ -n "$line" ]; do
        line=${line//CHANGE-ME-SERVER/"$server"}
        printf '%s\n' "${line//CHANGE-ME-ADMIN/"$admin"}"
    done <"$HERE/redis/users.acl.example"
}

# Redis with an account for the server, one that makes agents' accounts, and none for anybody else.
own_accounts() {
    local server admin
    server=$(random_word)
    admin=$(random_word)
    make_accounts "$server" "$admin"
    set_value "$1" FARM_BROKER_URL "redis://server:$server@127.0.0.1:6379/0"
    set_value "$1" FARM_BROKER_ADMIN_URL "redis://admin:$admin@127.0.0.1:6379/0"
}

make_accounts() {
    apt_install redis-server
    check_redis
    (
        umask 077
        accounts_with "$1" "$2" >"$WORK/acl"
    )
    install -m 0600 -o redis -g redis "$WORK/acl" "$REDIS_ACL"
    touch "$REDIS_CONF"
}

# An older one does not know where appenddirname is to be, and would not start.
check_redis() {
    local version
    version=$(redis-server --version)
    version=${version#*v=}
    [ "${version%%.*}" -ge 7 ] ||
        fail "Redis: expected 7.0 or newer, got ${version%% *} of $(of_system PRETTY_NAME): take Debian 12, Debian 13 or Ubuntu 24.04," \
            "or a Redis elsewhere with --broker URL"
}

# Settings that were brought back name accounts of a Redis that this machine has yet to get: it gets
# them, with these passwords, where it is to be on loopback or at the given address. Settings that
# name no Redis at all get one as a first installation does.
restore_broker() {
    local file=$CONFIG/server.env url admin
    [ ! -e "$REDIS_CONF" ] || return 0
    url=$(value_of "$file" FARM_BROKER_URL)
    admin=$(value_of "$file" FARM_BROKER_ADMIN_URL)
    if [ -z "$url" ]; then
        own_accounts "$file"
        return
    fi
    case ${url#*://} in server:*@*) url=${url#*://server:} ;; *) return 0 ;; esac
    case ${admin#*://} in admin:*@127.0.0.1:6379*) admin=${admin#*://admin:} ;; *) return 0 ;; esac
    case ${url##*@} in
    127.0.0.1:6379/* | "${ADDRESS:-none}":6379/* | "[${ADDRESS:-none}]:6379/"*) ;;
    *) return 0 ;;
    esac
    say "$file names accounts at a Redis of this machine, which is set up again with their passwords: farm agent sync makes the agents'"
    make_accounts "${url%@*}" "${admin%@*}"
}

# Whether the settings name the Redis that this script has set up.
broker_is_own() {
    local url address
    [ -e "$REDIS_CONF" ] || return 1
    url=$(value_of "$CONFIG/server.env" FARM_BROKER_URL)
    address=$(bound_address)
    case ${url##*@} in
    127.0.0.1:6379/* | "$address":6379/* | "[$address]:6379/"*) ;;
    "${ADDRESS:-none}":6379/* | "[${ADDRESS:-none}]:6379/"*) ;;
    *) return 1 ;;
    esac
}

bound_address() { sed -n 's/^bind 127.0.0.1 -::1 //p' "$REDIS_CONF"; }

# Whether somebody may listen there: with "beyond", beside one on loopback.
is_address() {
    "$PYTHON" - "$@" <<'END'
import ipaddress, socket, sys
try:
    address = ipaddress.ip_address(sys.argv[1])
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    socket.socket(family).bind((sys.argv[1], 0))
except (ValueError, OSError):
    sys.exit(1)
sys.exit("beyond" in sys.argv[2:] and (address.is_loopback or address.is_unspecified))
END
}

# The same account of the same Redis, as it listens now.
set_broker_host() {
    local account
    account=$(value_of "$1" "$2")
    [ -n "$account" ] || return 0
    account=${account#*://}
    set_value "$1" "$2" "$SCHEME://${account%@*}@$3:6379/0$QUERY"
}

# Redis of this machine: where it listens, and by what. Without an --address it stays as it is.
own_broker() {
    local file=$CONFIG/server.env host=127.0.0.1 is_plain=$PLAINTEXT was_plain=""
    CERTIFIED="" SCHEME=redis QUERY=""
    if [ -z "$ADDRESS" ]; then
        ADDRESS=$(bound_address)
        grep -q '^tls-port' "$REDIS_CONF" || is_plain=yes
    fi
    if is_plain_beyond; then was_plain=yes; fi
    cat >"$WORK/redis" <<END
bind 127.0.0.1 -::1${ADDRESS:+ $ADDRESS}
aclfile $REDIS_ACL
appenddirname $REDIS_DATA
END
    if [ -n "$ADDRESS" ] && [ -z "$is_plain" ]; then
        certify "$REDIS_CERTIFICATE" redis "$ADDRESS" 127.0.0.1 localhost "$(uname -n)"
        cat >>"$WORK/redis" <<END
port 0
tls-port 6379
tls-cert-file $REDIS_CERTIFICATE.pem
tls-key-file $REDIS_CERTIFICATE.key
END
        SCHEME=rediss QUERY="?ssl_ca_certs=$AUTHORITY.pem"
    fi
    add_what_may_be_edited
    case $ADDRESS in '') ;; *:*) host="[$ADDRESS]" ;; *) host=$ADDRESS ;; esac
    if [ -n "$ADDRESS" ] && [ "$SCHEME" = redis ]; then
        allow_plaintext "$file" broker
    else
        forbid_plaintext "$file" broker
    fi
    set_broker_host "$file" FARM_BROKER_URL "$host"
    set_broker_host "$file" FARM_BROKER_ADMIN_URL 127.0.0.1
    # Clients that wait for a command lose their connection for a second.
    if [ -n "$CERTIFIED" ] || ! cmp -s "$WORK/redis" "$REDIS_CONF"; then
        restart_redis
    fi
    if [ -n "$was_plain" ] && [ "$SCHEME" = rediss ]; then
        say "Redis speaks TLS alone from now on, so that agents which knew it without reach it no more: for each of them" \
            "'farm agent rotate NAME' prints new lines for deploy/install.sh agent --settings FILE; or stay with --plaintext"
    fi
}

# Whether it listens beyond loopback without TLS, as it was set up before.
is_plain_beyond() { [ -n "$(bound_address)" ] && ! grep -q '^tls-port' "$REDIS_CONF"; }

# Where Redis listens, by what and for whom is this script's to say, at each run. What else the file
# says stays as somebody has edited it; what it does not say is put there.
add_what_may_be_edited() {
    local line
    while IFS= read -r line || [ -n "$line" ]; do
        case ${line%% *} in
        bind | port | tls-port | tls-cert-file | tls-key-file | aclfile | appenddirname) ;;
        *) printf '%s\n' "$line" ;;
        esac
    done <"$REDIS_CONF" >"$WORK/edited"
    # Evicting a key would drop commands and reports; a full Redis refuses instead.
    while IFS= read -r line; do
        grep -q "^${line%% *} " "$WORK/edited" || printf '%s\n' "$line" >>"$WORK/edited"
    done <<END
protected-mode no${QUERY:+
tls-auth-clients no}
appendonly yes
appendfsync everysec
save ""
proto-max-bulk-len 64mb
maxmemory-policy noeviction
END
    cat "$WORK/edited" >>"$WORK/redis"
}

restart_redis() {
    install -m 0640 -o root -g redis "$WORK/redis" "$REDIS_CONF"
    grep -qx "include $REDIS_CONF" /etc/redis/redis.conf || printf '\ninclude %s\n' "$REDIS_CONF" >>/etc/redis/redis.conf
    install -d "$UNITS/redis-server.service.d"
    printf '[Unit]\nWants=network-online.target\nAfter=network-online.target\n' >"$UNITS/redis-server.service.d/benchfarm.conf"
    systemctl daemon-reload
    systemctl enable --quiet redis-server
    systemctl restart redis-server || fail "Redis does not start with $REDIS_CONF: journalctl -u redis-server"
}

# Where people reach the dashboard, by a certificate of the farm's authority.
own_web() {
    local file=$CONFIG/server.env names
    if [ -n "$WEB" ]; then
        set_value "$file" FARM_WEB_HOST "$WEB"
        if [ -n "$PLAINTEXT" ]; then
            allow_plaintext "$file" web
            set_value "$file" FARM_WEB_CERTIFICATE_FILE ""
            set_value "$file" FARM_WEB_KEY_FILE ""
            rm -f "$CONFIG"/web.{pem,key}
            return
        fi
        forbid_plaintext "$file" web
        case $WEB in 0.0.0.0 | ::) names=$(hostname -I) ;; *) names=$WEB ;; esac
        names="$names 127.0.0.1 localhost $(uname -n)"
        set_value "$file" FARM_WEB_CERTIFICATE_FILE "$CONFIG/web.pem"
        set_value "$file" FARM_WEB_KEY_FILE "$CONFIG/web.key"
    elif [ -e "$CONFIG/web.pem" ]; then
        names=$(sed -n '1s/^# //p' "$CONFIG/web.pem" | sed 's/IP://g; s/DNS://g; s/,/ /g')
    else
        return 0
    fi
    # shellcheck disable=SC2086 # a word each
    certify "$CONFIG/web" benchfarm $names
}

allow_plaintext() {
    local said
    said=$(value_of "$1" FARM_PLAINTEXT)
    case ,$said, in *",$2,"*) ;; *) set_value "$1" FARM_PLAINTEXT "${said:+$said,}$2" ;; esac
}

forbid_plaintext() {
    local said kept="" word
    said=$(value_of "$1" FARM_PLAINTEXT)
    case ,$said, in *",$2,"*) ;; *) return 0 ;; esac
    for word in ${said//,/ }; do
        [ "$word" = "$2" ] || kept+=${kept:+,}$word
    done
    set_value "$1" FARM_PLAINTEXT "$kept"
}

# PostgreSQL knows the farm's user by the socket: there is no password to keep.
own_database() {
    apt_install postgresql
    # Debian's own unit leaves a server down that was killed, as when memory ran out. Without a
    # language in the environment its package makes a cluster in which databases are SQL_ASCII.
    install -d "$UNITS/postgresql@.service.d"
    printf '[Service]\nRestart=on-failure\nRestartSec=5\n' >"$UNITS/postgresql@.service.d/benchfarm.conf"
    systemctl daemon-reload
    systemctl enable --quiet --now postgresql
    as_postgres() { setpriv --reuid=postgres --regid=postgres --init-groups --reset-env "$@"; }
    cd /
    as_postgres psql -qAtc "SELECT 1 FROM pg_roles WHERE rolname = 'benchfarm'" | grep -qx 1 ||
        as_postgres createuser benchfarm
    as_postgres psql -qAtc "SELECT 1 FROM pg_database WHERE datname = 'benchfarm'" | grep -qx 1 ||
        as_postgres createdb --owner benchfarm --template template0 --encoding UTF8 --locale C.UTF-8 benchfarm
}

# Without it nothing starts that talks to other machines. A second one is never made, since no key
# of an agent would count with it.
make_signing_key() {
    local file
    file=$(value_of "$CONFIG/server.env" FARM_SIGNING_KEY_FILE)
    if [ -n "$file" ] && [ ! -e "$file" ] && [ "$(farm agent list --json | tr -d '[:space:]')" = "[]" ]; then
        setpriv --reuid=benchfarm --regid=benchfarm --init-groups "$CURRENT/bin/python" -c '
import pathlib, sys
from farm.keys.signing_key import make_signing_key
make_signing_key(pathlib.Path(sys.argv[1]))
' "$file"
    fi
}

install_server() {
    add_user benchfarm /var/lib/benchfarm
    write_settings
    restore_broker
    if broker_is_own; then
        own_broker
    elif [ -n "$ADDRESS" ]; then
        fail "--address: it is for the Redis that this script sets up; FARM_BROKER_URL in $CONFIG/server.env names another, at" \
            "$(host_of "$(value_of "$CONFIG/server.env" FARM_BROKER_URL)"): leave --address away, or remove that line and" \
            "FARM_BROKER_ADMIN_URL's with it"
    fi
    own_web
    case $(value_of "$CONFIG/server.env" FARM_DATABASE_URL) in
    *host=/var/run/postgresql*) own_database ;;
    esac
    make_release
    install -d -m 0750 -o benchfarm -g benchfarm /var/lib/benchfarm
    install_units
    # Agents keep their reports on disk meanwhile.
    # shellcheck disable=SC2046 # names of services, a word each
    systemctl stop $(services_of server)
    point_to "$RELEASE"
    write_command
    # A store from before the first release is refused, and converted.
    if ! { farm db upgrade || { [ -n "$FORMER" ] && farm db convert && farm db upgrade; }; }; then
        if [ -n "$FORMER" ]; then
            point_to "$FORMER"
            start_services
            fail "the store was not upgraded: $FORMER runs on"
        fi
        fail "the store could not be made: correct FARM_DATABASE_URL in $CONFIG/server.env, and run this again"
    fi
    make_signing_key
    start_services
    systemctl enable --quiet --now farm-prune.timer
    say "the server runs; its dashboard's token is FARM_API_TOKEN in $CONFIG/server.env"
    say "for each agent: (umask 077; farm agent add NAME > NAME.env); take deploy and NAME.env there: deploy/install.sh agent --settings NAME.env"
    farm doctor || say "what the doctor calls wrong is left to you; that no agent has reported yet is no fault"
}

# --- the agent ----------------------------------------------------------------------------------

first_settings_of_agent() { :; }

install_agent() {
    apt_install nftables || say "nftables is not installed: every host that reaches this machine reaches its gangs' ports"
    add_user benchfarm /var/lib/benchfarm
    add_user benchfarm-trainer /var/lib/benchfarm-data
    install -d -m 0755 -o benchfarm-trainer -g benchfarm-trainer /var/lib/benchfarm-data
    write_settings
    keep_given_authority
    make_release
    point_to "$RELEASE"
    install_units
    start_services
    # The password is in the environment, where others cannot read it.
    FARM_BROKER_URL=$(value_of "$CONFIG/agent.env" FARM_BROKER_URL) "$CURRENT/bin/python" -c '
import os, sys
from farm.errors import FarmError
from farm.broker.celery_app import check_broker
try:
    check_broker(os.environ["FARM_BROKER_URL"])
except FarmError as error:
    sys.exit(f"install.sh: the agent runs, and waits: {error}")
'
    say "the agent runs and reaches its broker; on the server: farm agents, farm doctor"
}

# --- removal ------------------------------------------------------------------------------------

# Redis and PostgreSQL as their packages set them up; what the farm's Redis held is gone.
purge_broker() {
    rm -rf "$UNITS"/{redis-server,postgresql@}.service.d/benchfarm.conf
    rmdir --ignore-fail-on-non-empty "$UNITS"/{redis-server,postgresql@}.service.d 2>/dev/null || true
    systemctl daemon-reload
    [ -e "$REDIS_CONF" ] || return 0
    sed -i "\\:^include $REDIS_CONF\$:d" /etc/redis/redis.conf
    rm -rf "$REDIS_CONF" "$REDIS_ACL" "$REDIS_CERTIFICATE".{pem,key} "/var/lib/redis/$REDIS_DATA"
    systemctl try-restart redis-server || true
}

remove_role() {
    local service
    for service in $(services_of "$ROLE") $([ "$ROLE" = agent ] || echo farm-prune.timer farm-prune); do
        systemctl disable --quiet --now "$service" 2>/dev/null || true
        rm -rf "${UNITS:?}/$service" "$UNITS/$service.service" "$UNITS/$service.service.d"
    done
    systemctl daemon-reload
    [ "$ROLE" = agent ] || rm -f /usr/local/bin/farm
    if ! compgen -G "$UNITS/farm-*.service" >/dev/null; then
        rm -rf "$CURRENT" "$RELEASES"
    fi
    if [ -n "$PURGE" ]; then
        rm -f "$CONFIG/$ROLE.env"{,.new}
        if [ "$ROLE" = server ]; then
            rm -rf /var/lib/benchfarm /var/log/benchfarm
            rm -f "$AUTHORITY.pem" "$AUTHORITY.key" "$CONFIG"/web.{pem,key} /var/lib/systemd/timers/stamp-farm-prune.timer
            purge_broker
            say "its database stays, if it is on this machine: dropdb benchfarm as postgres"
        else
            rm -rf /var/lib/benchfarm-agent /var/lib/benchfarm-data /var/log/benchfarm-agent
            [ -e "$AUTHORITY.key" ] || rm -f "$AUTHORITY.pem"
            userdel benchfarm-trainer 2>/dev/null || true
        fi
        rmdir "$CONFIG" 2>/dev/null && userdel benchfarm 2>/dev/null
    fi
    say "$ROLE is removed"
}

# --- the command line ---------------------------------------------------------------------------

SETTINGS=() WHEELS="" OWN_REQUIREMENTS="" ADDRESS="" WEB="" PLAINTEXT="" BROKER="" DATABASE="" PURGE="" GPU=auto TORCH=""
GIVEN_AUTHORITY="" # certificates of whom an agent trusts
ACTION=${1:-}
[ "$#" -eq 0 ] || shift
case $ACTION in
-h | --help)
    usage
    exit 0
    ;;
wheels)
    [ "$#" -ge 1 ] || wrong "wheels: expected a folder"
    PYTHON=$(find_python)
    folder=$1
    shift
    [ "$#" -ge 1 ] || set -- server agent
    gather_wheels "$folder" "$@"
    exit 0
    ;;
remove)
    ROLE=${1:-}
    [ "$#" -eq 0 ] || shift
    ;;
server | agent) ROLE=$ACTION ;;
*) wrong "expected server, agent, wheels or remove, got '$ACTION'" ;;
esac
case $ROLE in server | agent) ;; *) wrong "remove: expected server or agent, got '$ROLE'" ;; esac

while [ "$#" -gt 0 ]; do
    option=$1
    shift
    case $option in
    --purge) PURGE=yes ;;
    --plaintext) PLAINTEXT=yes ;;
    --torch) TORCH=yes ;;
    *) false ;;
    esac && continue
    [ "$#" -gt 0 ] || wrong "$option: expected a value"
    case $option in
    --broker) BROKER=$1 SETTINGS+=("FARM_BROKER_URL=$1") ;;
    --database) DATABASE=$1 SETTINGS+=("FARM_DATABASE_URL=$1") ;;
    --address) ADDRESS=$1 ;;
    --web) WEB=$1 ;;
    --authority) GIVEN_AUTHORITY=$(cat "$1")$'\n' || wrong "--authority: expected a readable file, got $1" ;;
    --id) SETTINGS+=("AGENT_ID=$1") ;;
    --key | --token) SETTINGS+=("AGENT_KEY=$1") ;;
    --key-file) SETTINGS+=("AGENT_KEY=$(cat "$1")") ;;
    --settings) read_settings_file "$1" ;;
    --set)
        case $1 in [A-Z]*=*) SETTINGS+=("$1") ;; *) wrong "--set: expected NAME=VALUE, got $1" ;; esac
        ;;
    --wheels) WHEELS=$(cd "$1" && pwd) || wrong "--wheels: expected a folder, got $1" ;;
    --gpu)
        case $1 in auto | yes | no) GPU=$1 ;; *) wrong "--gpu: expected auto, yes or no, got $1" ;; esac
        ;;
    --requirements) OWN_REQUIREMENTS=$1 ;;
    *) wrong "unknown option $option" ;;
    esac
    shift
done

[ "$(id -u)" -eq 0 ] || fail "expected to be run as root"
command -v systemctl >/dev/null || fail "expected a system with systemd"
if [ "$ACTION" = remove ]; then
    remove_role
    exit 0
fi
command -v apt-get >/dev/null || fail "expected Debian or Ubuntu, whose packages it installs"
command -v python3 >/dev/null || apt_install python3 || fail "expected Python: apt install python3"
# A system that is too old or too new is refused before anything is installed on it.
PYTHON=$(find_python)
own_venv
[ -z "$ADDRESS" ] || is_address "$ADDRESS" beyond ||
    wrong "--address: expected an address of this machine beyond loopback, where Redis listens anyway, got $ADDRESS"
[ -z "$WEB" ] || is_address "$WEB" ||
    wrong "--web: expected an address of this machine, got $WEB"
FORMER=$(readlink "$CURRENT" || true)
# A machine may have both: one release serves them.
ROLES=()
for role in server agent; do
    if [ "$role" = "$ROLE" ] || [ -e "$UNITS/$(services_of "$role" | cut -d' ' -f1).service" ]; then
        ROLES+=("$role")
    fi
done
choose_requirements "${ROLES[@]}"
"install_$ROLE"
forget_old_releases
