# The gateway in a small image: one binary, no shell, not root.
#
#   docker build -t trunkline .
#   docker run --rm --init -p 127.0.0.1:8080:8080 trunkline
#
# The endpoint is then http://localhost:8080/mcp. To use your own configuration, mount it over the shipped one:
#   -v "$PWD/gateway.toml:/etc/trunkline/gateway.toml:ro"
# To reach the gateway by a name other than localhost, add the name to gateway.allowed_hosts.
# `npx` and `uvx` servers need their runtimes: build FROM an image that has them and copy
# /usr/local/bin/trunkline into it.

FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /build
COPY . .
# What is shipped is linked as one, reads embedding models and runs code, which takes minutes longer than the
# README's first command. The caches survive between builds, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --profile dist --locked --features full \
    && cp target/dist/trunkline /usr/local/bin/trunkline

# glibc and libgcc of the same Debian as above, CA certificates, and nothing else.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /usr/local/bin/trunkline /usr/local/bin/trunkline
COPY gateway.toml /etc/trunkline/gateway.toml
# Relative paths in the configuration (certs/) start here.
WORKDIR /etc/trunkline
EXPOSE 8080
# No HEALTHCHECK: there is no shell or curl to run one with. Orchestrators ask /healthz and /readyz.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/trunkline"]
# Loopback inside a container cannot be reached from outside, so listen on every address; `-p` decides what is
# published.
CMD ["serve", "--config", "/etc/trunkline/gateway.toml", "--listen", "0.0.0.0:8080"]
