package clustertest

import (
	_ "embed"
	"strings"
)

//go:embed every-kind.yaml
var everyKind string

// EveryKind returns manifests of more kinds than most applications have. The names of
// objects without a namespace contain the given one.
func EveryKind(namespace string) string { return strings.ReplaceAll(everyKind, "NS", namespace) }
