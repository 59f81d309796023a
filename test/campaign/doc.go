// Package campaign tests specs that are derived from the CRDs' schemas against a real API server and the manager. An
// invalid spec must be refused with the path of the field, or be reported in a condition. A valid spec must lead to the
// same state regardless of the previous spec.
package campaign
