#!/bin/sh
# What compose uses of the official image: a cluster made on the first start with a user, its
# password and its database; reached by TCP with the password, by the socket without.
set -eu
data=/var/lib/postgresql/data
if [ "$(id -u)" -eq 0 ]; then
    chown postgres: "$data"
    chmod 0700 "$data"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ ! -s "$data/PG_VERSION" ]; then
    umask 077
    echo "$POSTGRES_PASSWORD" >/tmp/password
    initdb --pgdata="$data" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust \
        --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
    rm /tmp/password
    echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
    # As there, only by the socket until the database exists.
    pg_ctl --pgdata="$data" --wait start -o "-c listen_addresses=''"
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl --pgdata="$data" --wait --mode=fast stop
fi
exec "$@" -D "$data" -c listen_addresses='*'
