package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

// lameDuck is how long the web application serves after SIGTERM, because its pod leaves the Service with a delay. LAME_DUCK
// replaces it.
const lameDuck = 10 * time.Second

// serveWeb responds with the name of the pod and its configuration.
func serveWeb(ctx context.Context) error {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]string{"pod": hostname(), "greeting": os.Getenv("GREETING"), "secret": os.Getenv("SECRET")})
	})
	routes.HandleFunc("GET /exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	routes.HandleFunc("GET /eat", func(http.ResponseWriter, *http.Request) { eat() })
	goOn := lameDuck
	if given := os.Getenv("LAME_DUCK"); given != "" {
		var err error
		if goOn, err = time.ParseDuration(given); err != nil {
			return fmt.Errorf("reading LAME_DUCK: %w", err)
		}
	}
	return serve(ctx, port("8080"), routes, goOn)
}

// eat allocates memory until the kernel kills the program.
func eat() {
	var eaten [][]byte
	for {
		block := make([]byte, 16<<20)
		for i := range block {
			block[i] = 1
		}
		eaten = append(eaten, block)
		_ = len(eaten)
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
