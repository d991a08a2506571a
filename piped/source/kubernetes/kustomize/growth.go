package kustomize

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"gopkg.in/yaml.v3"
)

// maxNodes bounds what a YAML file grows to once its aliases are followed.
const maxNodes = 200_000

// checkAliases refuses YAML that grows beyond bounds once its aliases are
// followed, which Kustomize does without one. What is not YAML is left to it.
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

// weigher counts the values of nodes, those behind aliases included.
type weigher struct{ known map[*yaml.Node]int }

// weigh returns a node's number of values, or one beyond maxNodes.
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
	w.known[n] = maxNodes + 1 // for one that holds itself
	total := 1
	for _, child := range n.Content {
		total = min(total+w.weigh(child), maxNodes+1)
	}
	w.known[n] = total
	return total
}

var escapedKind = regexp.MustCompile(`"k?i?n?\\[xuU\n]`)

// countKinds returns about how many objects a file holds, rather more. The time
// of a build grows with the square of them, and Kustomize has no limit.
func countKinds(data []byte) int {
	return bytes.Count(data, []byte("kind")) + len(escapedKind.FindAllIndex(data, -1))
}
