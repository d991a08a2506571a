package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// Telemetry is spec.telemetry: where traces of deployments are sent.
type Telemetry struct {
	// OTLPEndpoint is the host:port of a collector of OTLP over gRPC. Without it no traces are
	// made.
	// Default: none. Type: host:port.
	OTLPEndpoint string `yaml:"otlpEndpoint"`
	// Insecure sends traces without TLS.
	Insecure bool `yaml:"insecure"`
	// Headers are sent with each request, in lower case, such as `authorization`. Their values are
	// never shown.
	// Default: none.
	Headers map[string]strict.Secret `yaml:"headers"`
	// SampleRatio is the share of deployments that is traced, 0 to 1.
	// Default: `1`.
	SampleRatio float64 `yaml:"sampleRatio"`
}

// Same reports whether t and o are the same.
func (t Telemetry) Same(o Telemetry) bool {
	return t.OTLPEndpoint == o.OTLPEndpoint && t.Insecure == o.Insecure && t.SampleRatio == o.SampleRatio &&
		maps.EqualFunc(t.Headers, o.Headers, strict.Secret.Equal)
}

// Debug is spec.debug: what is for who looks into the process itself.
type Debug struct {
	// PprofAddress is a loopback address on which Go's profiles of the process are served.
	// Default: none. Type: host:port.
	PprofAddress string `yaml:"pprofAddress"`
}

func (t Telemetry) complete(d *strict.Document) Telemetry {
	switch {
	case strings.Contains(t.OTLPEndpoint, "/"):
		d.Problemf("telemetry.otlpEndpoint", "expected host:port, found %q", t.OTLPEndpoint)
	case t.OTLPEndpoint != "":
		checkAddress(d, "telemetry.otlpEndpoint", t.OTLPEndpoint)
	default:
		for _, key := range []string{"insecure", "headers", "sampleRatio"} {
			if d.Has("telemetry." + key) {
				d.Problemf("telemetry."+key, "needs telemetry.otlpEndpoint, the host:port of a collector")
			}
		}
	}
	if t.SampleRatio < 0 || t.SampleRatio > 1 {
		d.Problemf("telemetry.sampleRatio", "expected a number from 0 to 1, found %v", t.SampleRatio)
	}
	for _, name := range slices.Sorted(maps.Keys(t.Headers)) {
		if lower := strings.ToLower(name); strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.HasPrefix(lower, "grpc-") {
			d.Problemf("telemetry.headers", "%q cannot be the name of a header: use letters, digits, -, _ and ., and nothing that begins with grpc-", name)
		}
	}
	return t
}

func (g Debug) complete(d *strict.Document) Debug {
	if g.PprofAddress == "" {
		return g
	}
	if host, ok := checkAddress(d, "debug.pprofAddress", g.PprofAddress); ok && !loopback(host) {
		d.Problemf("debug.pprofAddress", "%s is reachable from other machines, and profiles show what the process holds: use 127.0.0.1:<port>", g.PprofAddress)
	}
	return g
}
