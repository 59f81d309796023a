package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/fixpoint-dev/fixpoint/controllers/securestorage"
	"github.com/fixpoint-dev/fixpoint/internal/cloud"
)

// completeCloud sets the endpoint of the cloud and the credentials of the manager.
func (s *settings) completeCloud() error {
	if s.cloudEndpoint == "" {
		if s.cloudTokenFile != "" {
			return errors.New("--cloud-token-file requires --cloud-endpoint: set both, or remove --cloud-token-file to use Azure credentials")
		}
		return nil
	}
	config, err := cloud.Endpoint(s.cloudEndpoint)
	if err != nil {
		return fmt.Errorf("--cloud-endpoint: %w", err)
	}
	s.options.Cloud = config
	if s.cloudTokenFile == "" {
		if config.AllowHTTP {
			return fmt.Errorf("--cloud-endpoint is %q, which would send Azure credentials unencrypted: set an https URL, or set --cloud-token-file for a fake cloud", s.cloudEndpoint)
		}
		return nil
	}
	if _, err := cloud.ReadToken(s.cloudTokenFile); err != nil {
		return fmt.Errorf("--cloud-token-file is %q, but it contains no token (%w): mount a file that contains the token", s.cloudTokenFile, err)
	}
	s.options.Credentials = cloud.FileCredentials{Path: s.cloudTokenFile}
	return nil
}

// ambientScopes is a flag such as billing=/subscriptions/<UUID>/resourceGroups/billing, which can be repeated.
type ambientScopes securestorage.AmbientScopes

func (a *ambientScopes) String() string {
	var pairs []string
	for _, namespace := range slices.Sorted(maps.Keys(*a)) {
		for _, scope := range (*a)[namespace] {
			pairs = append(pairs, namespace+"="+string(scope))
		}
	}
	return strings.Join(pairs, ",")
}

// Set implements flag.Value.
func (a *ambientScopes) Set(text string) error {
	namespace, id, _ := strings.Cut(text, "=")
	if namespace != securestorage.AllNamespaces && len(validation.IsDNS1123Label(namespace)) > 0 {
		return fmt.Errorf("set NAMESPACE=SCOPE, where %q is the name of a namespace, or * for all namespaces", namespace)
	}
	scope, err := cloud.ParseScope(id)
	if err != nil {
		return err
	}
	if *a == nil {
		*a = ambientScopes{}
	}
	(*a)[namespace] = append((*a)[namespace], scope)
	return nil
}
