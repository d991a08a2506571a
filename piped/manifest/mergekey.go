package manifest

import (
	"fmt"
	"slices"
	"strings"
)

// mergeKeys are the fields that identify the items of a list, by the list's name: the patch
// merge keys of the built-in types. A name that several types use for different lists has one
// entry for each.
var mergeKeys = map[string][][]string{
	"containers":                {{"name"}},
	"initContainers":            {{"name"}},
	"ephemeralContainers":       {{"name"}},
	"volumes":                   {{"name"}},
	"volumeMounts":              {{"mountPath"}},
	"volumeDevices":             {{"devicePath"}},
	"env":                       {{"name"}},
	"imagePullSecrets":          {{"name"}},
	"secrets":                   {{"name"}},
	"hostAliases":               {{"ip"}},
	"ports":                     {{"containerPort", "protocol"}, {"port", "protocol"}},
	"topologySpreadConstraints": {{"topologyKey", "whenUnsatisfiable"}},
	"resourceClaims":            {{"name"}},
	"volumeClaimTemplates":      {{"metadata.name"}},
}

// generalKeys identify the items of other lists.
var generalKeys = [][]string{{"name"}, {"key"}, {"id"}}

// orderCounts reports whether the order of a keyed list matters: it does for init containers,
// and it may for unknown lists.
func orderCounts(list string) bool {
	return list == "initContainers" || mergeKeys[list] == nil
}

// keysOf returns the fields that identify all items of a list, nil if there are none.
func keysOf(list string, items []any) []string {
	candidates := mergeKeys[list]
	if candidates == nil {
		candidates = generalKeys
	}
	for _, keys := range candidates {
		if !slices.ContainsFunc(items, func(item any) bool { return field(item, keys[0]) == "" }) {
			return keys
		}
	}
	return nil
}

// byKey returns the items of a list by the values of their keys, and these values in the order
// of the items; nil if two items have equal keys.
func byKey(keys []string, items []any) (map[string]any, []string) {
	out, names := make(map[string]any, len(items)), make([]string, 0, len(items))
	for _, item := range items {
		var parts []string
		for _, key := range keys {
			value := field(item, key)
			if value == "" && key == "protocol" {
				value = "TCP" // the API server's default
			}
			parts = append(parts, key[strings.LastIndex(key, ".")+1:]+"="+value)
		}
		name := strings.Join(parts, ",")
		if _, twice := out[name]; twice {
			return nil, nil
		}
		out[name] = item
		names = append(names, name)
	}
	return out, names
}

// field returns the text or number at a dotted path of a list item, "" if there is
// none.
func field(item any, path string) string {
	for _, key := range strings.Split(path, ".") {
		m, _ := item.(map[string]any)
		item = m[key]
	}
	switch v := item.(type) {
	case string:
		return v
	case int64, int, float64:
		return fmt.Sprint(v)
	}
	return ""
}
