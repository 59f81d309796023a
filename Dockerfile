# For those who build images with an engine. `make image` needs none, and makes the
# image that is released: byte for byte the same from the same commit, with a bill of
# materials in it.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION=unknown COMMIT=unknown DATE=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY apis apis
COPY cmd cmd
COPY controllers controllers
COPY internal internal
COPY pkg pkg
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false \
	-ldflags "-s -w -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.version=$VERSION -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.commit=$COMMIT -X github.com/fixpoint-dev/fixpoint/internal/buildinfo.date=$DATE" \
	-o /out/ ./cmd/manager ./cmd/mcp-bridge ./cmd/fake-cloud

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /
USER 65532:65532
ENTRYPOINT ["/manager"]
