package cluster

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/fixpoint-dev/fixpoint/internal/conversion"
)

// conversionWebhook serves the conversion webhook of this project's CustomResourceDefinitions, so that a cluster has
// all versions of their kinds without a manager.
type conversionWebhook struct {
	server *http.Server
	config *apiextensionsv1.CustomResourceConversion
}

// startConversion starts the webhook. It ends with this process.
func startConversion(ca *authority) (*conversionWebhook, error) {
	issued, err := ca.server(serviceIP)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(issued.certificate, issued.key)
	if err != nil {
		return nil, fmt.Errorf("loading the certificate of the conversion webhook: %w", err)
	}
	listener, err := tls.Listen("tcp", loopback+":0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, fmt.Errorf("serving the conversion webhook: %w", err)
	}
	w := &conversionWebhook{
		server: &http.Server{
			Handler: conversion.Handler(logr.Discard(), nil), ReadHeaderTimeout: 10 * time.Second,
			ErrorLog: log.New(io.Discard, "", 0), // connections that the API server abandons
		},
		config: ConversionAt("https://"+listener.Addr().String()+conversion.Path, ca.pem),
	}
	go func() { _ = w.server.Serve(listener) }() // returns when the cluster stops
	return w, nil
}

// ConversionAt is the conversion of a CustomResourceDefinition by a webhook at a URL.
func ConversionAt(url string, ca []byte) *apiextensionsv1.CustomResourceConversion {
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: ca},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}

func (w *conversionWebhook) stop() {
	if w != nil {
		_ = w.server.Close()
	}
}

// convertedBy replaces the conversion of a CustomResourceDefinition that has one.
func (w *conversionWebhook) convertedBy(definition []byte) ([]byte, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(definition, &fields); err != nil {
		return nil, fmt.Errorf("parsing a CustomResourceDefinition: %w", err)
	}
	spec, _ := fields["spec"].(map[string]any)
	if spec["conversion"] == nil {
		return definition, nil
	}
	spec["conversion"] = w.config
	return yaml.Marshal(fields)
}
