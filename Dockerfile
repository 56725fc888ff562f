# The gateway's image: one static binary, no shell, nothing else to run. Made of what `make image` puts together; docs/install.md.
FROM scratch
ARG TARGETARCH
COPY --chmod=0755 ${TARGETARCH}/lockgate /lockgate
# Whom backends over TLS, and the API server of a kubeconfig, are verified by where nothing else is said.
COPY --chmod=0444 ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# The C library asks /etc/hosts first, as everywhere.
COPY --chmod=0444 nsswitch.conf /etc/nsswitch.conf
LABEL org.opencontainers.image.title=lockgate \
      org.opencontainers.image.source=https://github.com/lockgate/lockgate \
      org.opencontainers.image.licenses=Apache-2.0
USER 65532:65532
EXPOSE 8080 8443 8081
ENTRYPOINT ["/lockgate"]
