package controllers

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestBridgeImageHasTheTagOfTheVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":                              "v1.2.3",
		"v1.2.3-rc.1":                         "v1.2.3-rc.1",
		"v1.2.3-4-g0123abc-dirty":             "v1.2.3-4-g0123abc-dirty",
		"v0.0.0-20261122021500-0123abc+dirty": "v0.0.0-20261122021500-0123abc_dirty",
		"(devel)":                             "devel",
		"unknown":                             "unknown",
	} {
		NewWithT(t).Expect(imageTag(version)).To(Equal(want), version)
	}
	NewWithT(t).Expect(DefaultBridgeImage).NotTo(HaveSuffix(":latest"))
}
