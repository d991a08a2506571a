package schema

import (
	"maps"
	"slices"
)

// Keys returns the path of every key an object of this schema takes, sorted.
// List indices are written [], a key of a map *, and what a deciding field opens
// stands behind its value: stages[].with<WAIT>.duration. A key that is written
// and ignored is not among them.
func Keys(object Schema) []string {
	seen := map[string]bool{}
	collect("", object, seen)
	return slices.Sorted(maps.Keys(seen))
}

func collect(path string, s Schema, into map[string]bool) {
	if items, ok := s["items"].(Schema); ok {
		collect(path+"[]", items, into)
	}
	if values, ok := s["additionalProperties"].(Schema); ok {
		collect(join(path, "*"), values, into)
	}
	properties, _ := s["properties"].(Schema)
	for key, p := range properties {
		if property, open := p.(Schema); open && property["deprecated"] == nil {
			into[join(path, key)] = true
			collect(join(path, key), property, into)
		}
	}
	rules, _ := s["allOf"].([]Schema)
	for _, rule := range rules {
		for _, decided := range rule["if"].(Schema)["properties"].(Schema) {
			value := decided.(Schema)["const"].(string)
			for open, shape := range rule["then"].(Schema)["properties"].(Schema) {
				collect(join(path, open)+"<"+value+">", shape.(Schema), into)
			}
		}
	}
}
