package variant

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// nodeOf converts a JSON value to a YAML node. It sorts the keys of mappings.
func nodeOf(v any) *yaml.Node {
	scalar := func(tag, value string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
	}
	switch v := v.(type) {
	case map[string]any:
		m := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			m.Content = append(m.Content, scalar("!!str", key), nodeOf(v[key]))
		}
		return m
	case []any:
		list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, item := range v {
			list.Content = append(list.Content, nodeOf(item))
		}
		return list
	case string:
		return scalar("!!str", v)
	case bool:
		return scalar("!!bool", strconv.FormatBool(v))
	case int64:
		return scalar("!!int", strconv.FormatInt(v, 10))
	case float64:
		return scalar("!!float", strconv.FormatFloat(v, 'g', -1, 64))
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	}
	return nullNode()
}

// clone returns a deep copy of n. Aliases in the copy refer to the original anchors.
func clone(n *yaml.Node) *yaml.Node {
	c := *n
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = clone(child)
	}
	return &c
}

// contentOf converts a YAML node to the content of an object. It returns an error for values
// that JSON cannot represent.
func contentOf(root *yaml.Node) (map[string]any, error) {
	datesAreTexts(root)
	var content any
	if err := root.Decode(&content); err != nil {
		return nil, errors.New("the result is not a Kubernetes object: an alias, a merge or a tag in it cannot be followed")
	}
	object, err := likeJSON(content)
	if err != nil {
		return nil, fmt.Errorf("the result is not a Kubernetes object: %w", err)
	}
	m, ok := object.(map[string]any)
	if !ok {
		return nil, errors.New("the result is not a Kubernetes object: expected a mapping")
	}
	return m, nil
}

// datesAreTexts changes YAML timestamps below n to strings, because JSON has no timestamps.
func datesAreTexts(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, c := range n.Content {
		datesAreTexts(c)
	}
}

// likeJSON converts a decoded YAML value to the types of unstructured objects: int becomes
// int64. It changes maps and lists in place.
func likeJSON(v any) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			made, err := likeJSON(value)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			v[key] = made
		}
		return v, nil
	case []any:
		for i, item := range v {
			made, err := likeJSON(item)
			if err != nil {
				return nil, err
			}
			v[i] = made
		}
		return v, nil
	case int:
		return int64(v), nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, errors.New("expected a number that JSON has")
		}
		return v, nil
	case nil, string, bool, int64:
		return v, nil
	}
	return nil, fmt.Errorf("expected texts as keys, and numbers within 64 bits; found a %T", v)
}
