package helm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"text/template"

	"github.com/BurntSushi/toml"
	"github.com/Masterminds/sprig/v3"
	"sigs.k8s.io/yaml"
	goyaml "sigs.k8s.io/yaml/goyaml.v3"
)

// functionMap returns Helm's functions except include and tpl, which depend on a template.
// Names and results, including errors that are returned as results, are the same as in Helm.
// The map also has the printing functions of text/template, so that they can be limited.
func functionMap() template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	maps.Copy(all, template.FuncMap{
		"toYaml": toYAML, "mustToYaml": mustToYAML, "toYamlPretty": toYAMLPretty,
		"fromYaml": fromYAML, "fromYamlArray": fromYAMLArray,
		"toJson": toJSON, "mustToJson": mustToJSON, "fromJson": fromJSON, "fromJsonArray": fromJSONArray,
		"toToml": toTOML, "mustToToml": mustToTOML, "fromToml": fromTOML,

		"required": required,
		"fail":     func(text string) (string, error) { return "", &failError{text} },
		"lookup":   func(apiVersion, kind, namespace, name string) map[string]any { return map[string]any{} },

		"getHostByName": func(string) string { return "" },

		"print": fmt.Sprint, "printf": fmt.Sprintf, "println": fmt.Sprintln,
		"html": template.HTMLEscaper, "js": template.JSEscaper, "urlquery": template.URLQueryEscaper,
	})
	maps.Copy(all, durationFunctions())
	return all
}

// required returns a value, or the message as an error if it is nil or "".
func required(text string, v any) (any, error) {
	if v == nil || v == "" {
		return v, &failError{text}
	}
	return v, nil
}

func toYAML(v any) string {
	data, err := yaml.Marshal(v)
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(data), "\n")
}

func mustToYAML(v any) (string, error) {
	data, err := yaml.Marshal(v)
	return strings.TrimSuffix(string(data), "\n"), err
}

func toYAMLPretty(v any) string {
	var data bytes.Buffer
	encoder := goyaml.NewEncoder(&data)
	encoder.SetIndent(2)
	if err := encoder.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(data.String(), "\n")
}

func fromYAML(text string) map[string]any {
	return decodeMap(text, func(data []byte, v any) error { return yaml.Unmarshal(data, v) })
}

func fromYAMLArray(text string) []any {
	return decodeList(text, func(data []byte, v any) error { return yaml.Unmarshal(data, v) })
}

func toJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(data)
}

func mustToJSON(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}

func fromJSON(text string) map[string]any { return decodeMap(text, json.Unmarshal) }

func fromJSONArray(text string) []any { return decodeList(text, json.Unmarshal) }

func toTOML(v any) string {
	text, err := mustToTOML(v)
	if err != nil {
		return err.Error()
	}
	return text
}

func mustToTOML(v any) (string, error) {
	var data bytes.Buffer
	err := toml.NewEncoder(&data).Encode(v)
	return data.String(), err
}

func fromTOML(text string) map[string]any { return decodeMap(text, toml.Unmarshal) }

// decodeMap decodes a mapping. It returns an error as value of the key Error, as Helm does.
func decodeMap(text string, decode func([]byte, any) error) map[string]any {
	m := map[string]any{}
	if err := decode([]byte(text), &m); err != nil {
		m["Error"] = err.Error()
	}
	return m
}

// decodeList decodes a list. It returns an error as the only item, as Helm does.
func decodeList(text string, decode func([]byte, any) error) []any {
	list := []any{}
	if err := decode([]byte(text), &list); err != nil {
		return []any{err.Error()}
	}
	return list
}
