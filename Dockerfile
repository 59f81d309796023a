# For those who build images with an engine. `make image` needs none, and makes the
# image that is released: byte for byte the same from the same commit, with a bill of
# materials in it. Build the fake cloud, which is for tests, with --target fake-cloud.
#
# Only the programs reach the image: it has no base. The toolchain that builds them is
# the one in go.mod, by digest. To update it: docker buildx imagetools inspect golang:X.
FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26.8@sha256:3c3e25a4da13fd0478eed2df1eb35a0e667094a7124d3993a6a1d30f71c17e79 AS build
ARG TARGETOS TARGETARCH VERSION=unknown COMMIT=unknown DATE=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY apis apis
COPY cmd cmd
COPY config/crd config/crd
COPY controllers controllers
COPY internal internal
COPY pkg pkg
ENV CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH GOFLAGS="-trimpath -buildvcs=false"
RUN go build \
	-ldflags "-s -w -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.version=$VERSION -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.commit=$COMMIT -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.date=$DATE" \
	-o /out/ ./cmd/manager ./cmd/mcp-bridge ./cmd/console

FROM build AS build-fake-cloud
RUN go build -o /out-fake-cloud/ ./cmd/fake-cloud

FROM scratch AS fake-cloud
COPY --from=build-fake-cloud /out-fake-cloud/ /
USER 65532:65532
ENTRYPOINT ["/fake-cloud"]

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/manager"]
