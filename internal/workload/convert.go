package workload

import "encoding/json"

// Convert turns an API type into its apply configuration: both have the same JSON.
func Convert(from, into any) error {
	raw, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
