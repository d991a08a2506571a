package schema

import "slices"

// Keys returns the path of every key an object of this schema takes, sorted.
// List indices are written [], a key of a map *, and what a deciding field opens
// stands behind its value: stages[].with<WAIT>.duration. A key that is written
// and ignored is not among them.
func Keys(object Schema) []string {
	var keys []string
	walk("", object, func(path string, _ Schema) { keys = append(keys, path) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Defaults returns the defaults by the paths of Keys.
func Defaults(object Schema) map[string]any {
	defaults := map[string]any{}
	walk("", object, func(path string, property Schema) {
		if value, ok := property["default"]; ok {
			defaults[path] = value
		}
	})
	return defaults
}

// walk calls visit for every property, at any depth.
func walk(path string, s Schema, visit func(path string, property Schema)) {
	if items, ok := s["items"].(Schema); ok {
		walk(path+"[]", items, visit)
	}
	if values, ok := s["additionalProperties"].(Schema); ok {
		walk(join(path, "*"), values, visit)
	}
	properties, _ := s["properties"].(Schema)
	for key, p := range properties {
		if property, open := p.(Schema); open && property["deprecated"] == nil {
			visit(join(path, key), property)
			walk(join(path, key), property, visit)
		}
	}
	rules, _ := s["allOf"].([]Schema)
	for _, rule := range rules {
		for _, decided := range rule["if"].(Schema)["properties"].(Schema) {
			value := decided.(Schema)["const"].(string)
			for open, shape := range rule["then"].(Schema)["properties"].(Schema) {
				walk(join(path, open)+"<"+value+">", shape.(Schema), visit)
			}
		}
	}
}
