# arkqueue itself, every role of it: docker run … arkqueue/arkqueue web | manager | worker
#
#   docker build --tag arkqueue/arkqueue .
#
# BASE is any Debian or Ubuntu with Python 3.11 or newer; name one of your own where no registry is reached.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends ca-certificates python3 python3-venv
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY hooks hooks
COPY arkqueue arkqueue
RUN python3 -m venv /opt/arkqueue && /opt/arkqueue/bin/pip install --no-cache-dir .

FROM ${BASE}
# git fetches and clones, ssh is its way to some servers; curl asks for the API's health; tini is the init.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
        ca-certificates curl git openssh-client python3 subversion tini tzdata \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb
COPY --from=build /opt/arkqueue /opt/arkqueue
ENV PATH=/opt/arkqueue/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    ARKQUEUE_HOME=/var/lib/arkqueue
ENTRYPOINT ["/usr/bin/tini", "--", "arkqueue"]
CMD ["serve"]
