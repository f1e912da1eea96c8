# Stands in for the official image of PostgreSQL where no registry is reached: the same settings, user and folder, a real PostgreSQL.
ARG BASE
FROM ${BASE}
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends postgresql postgresql-client tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
ENV PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
RUN printf '%s\n' '#!/bin/sh' 'set -e' \
      'cd /' \
      'bin=$(echo /usr/lib/postgresql/*/bin)' \
      'install -d -o postgres -g postgres -m 0700 "$PGDATA"' \
      'if [ ! -e "$PGDATA/PG_VERSION" ]; then' \
      '  printf "%s" "$POSTGRES_PASSWORD" > /tmp/password && chown postgres /tmp/password' \
      '  setpriv --reuid=postgres --regid=postgres --init-groups "$bin/initdb" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8' \
      '  rm /tmp/password' \
      '  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"' \
      '  echo "create database \"$POSTGRES_DB\"" | setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" --single -E postgres' \
      'fi' \
      'exec setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" -c listen_addresses="*"' \
      > /usr/local/bin/start-postgres && chmod +x /usr/local/bin/start-postgres
ENTRYPOINT ["/usr/bin/tini", "--", "start-postgres"]
