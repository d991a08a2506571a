package sops

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

// format parses and serializes the documents of a file.
type format struct {
	read  func(data []byte) ([]mapping, error)
	write func(docs []mapping) ([]byte, error)
	flat  string // the key prefix of flattened metadata; "" if metadata is under the key sops
}

// formatOf returns the format of a file according to its extension and, if that is not
// sufficient, its content.
func formatOf(name string, data []byte) format {
	text := bytes.TrimSpace(data)
	object := bytes.HasPrefix(text, []byte("{"))
	switch ext := path.Ext(name); {
	case ext == ".json", object && (ext == ".yaml" || ext == ".yml"):
		return format{read: readJSON, write: writeJSON}
	case ext == ".yaml", ext == ".yml":
		return format{read: readYAML, write: writeYAML}
	case object:
		return format{read: readJSON, write: writeBinary}
	case bytes.HasPrefix(text, []byte("sops_")), bytes.Contains(text, []byte("\nsops_mac=")):
		return format{read: readDotenv, write: writeDotenv, flat: "sops_"}
	case bytes.Contains(text, []byte("[sops]")):
		return format{read: readINI, write: writeINI}
	}
	return format{read: readYAML, write: writeYAML}
}

var errSyntax = errors.New("it is not in the format that its name says")

func readYAML(data []byte) (docs []mapping, err error) {
	for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil || len(doc.Content) != 1 {
			return nil, errSyntax
		}
		root := doc.Content[0]
		if root.ShortTag() == "!!null" {
			docs = append(docs, mapping{})
			continue
		}
		if root.Kind != yaml.MappingNode {
			return nil, errSyntax
		}
		m, err := fromMapping(root, comments(nil, doc.HeadComment), false, maxDepth)
		if err != nil {
			return nil, err
		}
		docs = append(docs, m)
	}
}

// comments appends the lines of a YAML comment to a mapping, one entry per line.
func comments(m mapping, text string) mapping {
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			m = append(m, entry{value: comment(line[1:])})
		}
	}
	return m
}

func fromMapping(n *yaml.Node, m mapping, handled bool, depth int) (mapping, error) {
	if !handled {
		m = comments(comments(m, n.HeadComment), n.LineComment)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		m = comments(comments(m, key.HeadComment), key.LineComment)
		scalar := value.Kind == yaml.ScalarNode
		if scalar {
			m = comments(comments(m, value.HeadComment), value.LineComment)
		}
		if key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" && key.ShortTag() != "!!merge" {
			return nil, errors.New("it has a key that is no text")
		}
		v, err := fromNode(value, scalar, depth-1)
		if err != nil {
			return nil, err
		}
		m = append(m, entry{key.Value, v})
		if scalar {
			m = comments(m, value.FootComment)
		}
		m = comments(m, key.FootComment)
	}
	if !handled {
		m = comments(m, n.FootComment)
	}
	return m, nil
}

func fromNode(n *yaml.Node, handled bool, depth int) (any, error) {
	if depth < 0 {
		return nil, errDeep
	}
	switch n.Kind {
	case yaml.MappingNode:
		m, err := fromMapping(n, nil, handled, depth)
		return m, err
	case yaml.SequenceNode:
		return fromSequence(n, handled, depth)
	case yaml.AliasNode:
		return nil, errors.New("it has YAML aliases, which SOPS does not write")
	}
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, errSyntax
	}
	return value, nil
}

func fromSequence(n *yaml.Node, handled bool, depth int) (any, error) {
	list := []any{}
	add := func(text string) {
		for _, e := range comments(nil, text) {
			list = append(list, e.value)
		}
	}
	if !handled {
		add(n.HeadComment)
		add(n.LineComment)
	}
	for _, item := range n.Content {
		add(item.HeadComment)
		add(item.LineComment)
		v, err := fromNode(item, true, depth-1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		add(item.FootComment)
	}
	if !handled {
		add(n.FootComment)
	}
	return list, nil
}

func writeYAML(docs []mapping) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, doc := range docs {
		n, err := toNode(doc)
		if err != nil {
			return nil, err
		}
		if err := enc.Encode(n); err != nil {
			return nil, err
		}
	}
	err := enc.Close()
	return out.Bytes(), err
}

func toNode(value any) (*yaml.Node, error) {
	n := &yaml.Node{}
	switch v := value.(type) {
	case mapping:
		n.Kind = yaml.MappingNode
		for _, e := range v {
			key := &yaml.Node{}
			if err := key.Encode(e.key); err != nil {
				return nil, err
			}
			child, err := toNode(e.value)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, key, child)
		}
	case []any:
		n.Kind = yaml.SequenceNode
		for _, item := range v {
			child, err := toNode(item)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
	default:
		return n, n.Encode(value)
	}
	return n, nil
}

func readJSON(data []byte) ([]mapping, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	v, err := fromJSON(dec, maxDepth)
	if err != nil {
		return nil, err
	}
	m, ok := v.(mapping)
	if !ok || dec.More() {
		return nil, errSyntax
	}
	return []mapping{m}, nil
}

func fromJSON(dec *json.Decoder, depth int) (any, error) {
	if depth < 0 {
		return nil, errDeep
	}
	token, err := dec.Token()
	if err != nil {
		return nil, errSyntax
	}
	switch t := token.(type) {
	case json.Number:
		if n, err := t.Int64(); err == nil {
			return int(n), nil
		}
		f, err := t.Float64()
		return f, err
	case json.Delim:
		if t == '[' {
			list := []any{}
			for dec.More() {
				v, err := fromJSON(dec, depth-1)
				if err != nil {
					return nil, err
				}
				list = append(list, v)
			}
			_, err := dec.Token()
			return list, err
		}
		m := mapping{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, errSyntax
			}
			v, err := fromJSON(dec, depth-1)
			if err != nil {
				return nil, err
			}
			m = append(m, entry{fmt.Sprint(key), v})
		}
		if _, err := dec.Token(); err != nil {
			return nil, errSyntax
		}
		return m, nil
	}
	return token, nil
}

func writeJSON(docs []mapping) ([]byte, error) {
	var out bytes.Buffer
	if err := toJSON(&out, docs[0]); err != nil {
		return nil, err
	}
	var pretty bytes.Buffer
	err := json.Indent(&pretty, out.Bytes(), "", "\t")
	pretty.WriteByte('\n')
	return pretty.Bytes(), err
}

func toJSON(out *bytes.Buffer, value any) error {
	switch v := value.(type) {
	case mapping:
		for i, e := range v {
			out.WriteByte("{,"[min(i, 1)])
			key, err := json.Marshal(e.key)
			if err != nil {
				return err
			}
			out.Write(key)
			out.WriteByte(':')
			if err := toJSON(out, e.value); err != nil {
				return err
			}
		}
		if len(v) == 0 {
			out.WriteByte('{')
		}
		out.WriteByte('}')
		return nil
	case []any:
		for i, item := range v {
			out.WriteByte("[,"[min(i, 1)])
			if err := toJSON(out, item); err != nil {
				return err
			}
		}
		if len(v) == 0 {
			out.WriteByte('[')
		}
		out.WriteByte(']')
		return nil
	}
	data, err := json.Marshal(value)
	out.Write(data)
	return err
}

// writeBinary returns the content of a JSON envelope, or JSON if docs is not an envelope.
func writeBinary(docs []mapping) ([]byte, error) {
	if len(docs[0]) == 1 && docs[0][0].key == "data" {
		text, ok := docs[0][0].value.(string)
		if ok {
			return []byte(text), nil
		}
	}
	return writeJSON(docs)
}

func readDotenv(data []byte) ([]mapping, error) {
	m := mapping{}
	for line := range strings.SplitSeq(string(data), "\n") {
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "":
		case line[0] == '#':
			m = append(m, entry{value: comment(line[1:])})
		case !ok:
			return nil, errSyntax
		default:
			m = append(m, entry{key, strings.ReplaceAll(value, `\n`, "\n")})
		}
	}
	return []mapping{m}, nil
}

func writeDotenv(docs []mapping) ([]byte, error) {
	var out bytes.Buffer
	for _, e := range docs[0] {
		fmt.Fprintf(&out, "%s=%s\n", e.key, strings.ReplaceAll(lineText(e.value), "\n", `\n`))
	}
	return out.Bytes(), nil
}

// readINI parses the subset of INI that SOPS writes: sections of key = value, with quotes if
// needed.
func readINI(data []byte) ([]mapping, error) {
	m := mapping{{"DEFAULT", mapping{}}}
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if name, ok := strings.CutPrefix(line, "["); ok && strings.HasSuffix(name, "]") {
			m = append(m, entry{strings.TrimSuffix(name, "]"), mapping{}})
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, errSyntax
		}
		value = strings.TrimSpace(value)
		if rest, long := strings.CutPrefix(value, `"""`); long {
			text := []string{rest}
			for !strings.HasSuffix(text[len(text)-1], `"""`) {
				if i++; i == len(lines) {
					return nil, errSyntax
				}
				text = append(text, lines[i])
			}
			value = strings.TrimSuffix(strings.Join(text, "\n"), `"""`)
		} else if n := len(value); n > 1 && value[0] == value[n-1] && strings.ContainsRune("\"'`", rune(value[0])) {
			value = value[1 : n-1]
		}
		last := &m[len(m)-1]
		last.value = append(last.value.(mapping), entry{strings.Trim(strings.TrimSpace(key), "`\""), value})
	}
	if len(m[0].value.(mapping)) == 0 {
		m = m[1:]
	}
	return []mapping{m}, nil
}

func writeINI(docs []mapping) ([]byte, error) {
	var out bytes.Buffer
	for _, section := range docs[0] {
		keys, ok := section.value.(mapping)
		if !ok {
			return nil, errSyntax
		}
		fmt.Fprintf(&out, "[%s]\n", section.key)
		for _, e := range keys {
			value := lineText(e.value)
			switch {
			case strings.ContainsAny(value, "\n`"):
				value = `"""` + value + `"""`
			case strings.ContainsAny(value, "#;"), strings.TrimSpace(value) != value:
				value = "`" + value + "`"
			}
			fmt.Fprintf(&out, "%s = %s\n", e.key, value)
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// lineText formats a value for the line-based formats dotenv and INI.
func lineText(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case time.Time:
		return v.Format(time.RFC3339)
	}
	return fmt.Sprint(value)
}
