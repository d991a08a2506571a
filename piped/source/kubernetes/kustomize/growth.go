package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"gopkg.in/yaml.v3"
)

// maxNodes is the maximum number of values in a YAML file after its aliases are expanded.
const maxNodes = 200_000

// checkAliases returns an error for YAML that expands to more than maxNodes values by aliases,
// because Kustomize has no such limit. It accepts invalid YAML, which Kustomize reports.
func checkAliases(data []byte) error {
	if !bytes.ContainsRune(data, '&') || !bytes.ContainsRune(data, '*') {
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	w := weigher{known: map[*yaml.Node]int{}}
	for total := 0; ; {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) || err != nil {
			return nil
		}
		if total += w.weigh(&doc); total > maxNodes {
			return fmt.Errorf("it grows beyond %d values once its aliases are followed", maxNodes)
		}
	}
}

// weigher counts the values of nodes with expanded aliases.
type weigher struct{ known map[*yaml.Node]int }

// weigh returns the number of values of a node, at most maxNodes+1.
func (w weigher) weigh(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	if n.Kind == yaml.AliasNode {
		return w.weigh(n.Alias)
	}
	if total, ok := w.known[n]; ok {
		return total
	}
	w.known[n] = maxNodes + 1 // for a node that contains itself
	total := 1
	for _, child := range n.Content {
		total = min(total+w.weigh(child), maxNodes+1)
	}
	w.known[n] = total
	return total
}

var escapedKind = regexp.MustCompile(`"k?i?n?\\[xuU\n]`)

// countKinds returns an upper estimate of the number of objects in a file. Kustomize has no
// limit, and the time of a build grows with its square.
func countKinds(data []byte) int {
	return bytes.Count(data, []byte("kind")) + len(escapedKind.FindAllIndex(data, -1))
}
