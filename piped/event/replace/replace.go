package replace

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/c785c783/piped/piped/config"
)

// Apply returns content with value at the place that r defines, or content itself if the value
// is already there. It returns an error if the place is not found or cannot be replaced. The
// error does not name the file.
//
// A field keeps its quotes. An unquoted value is quoted if its type would change otherwise: a
// string remains a string, and a number remains one only if value is a number.
func Apply(content []byte, r config.Replacement, value string) ([]byte, error) {
	if !utf8.Valid(content) || !utf8.ValidString(value) {
		return nil, errors.New("the file and the value must be UTF-8")
	}
	switch {
	case r.YAMLField != "":
		return inYAML(content, r.YAMLField, value)
	case r.JSONField != "":
		return inJSON(content, r.JSONField, value)
	case r.HCLField != "":
		return inHCL(content, r.HCLField, value)
	case r.Regex != "":
		return byRegex(content, r.Regex, value)
	}
	return nil, errors.New("the replacement names no place: set one of yamlField, jsonField, HCLField and regex")
}

// splice replaces the bytes in the range [from, to) by text.
type splice struct {
	from, to int
	text     string
}

// spliced returns content with all splices applied; they must not overlap.
func spliced(content []byte, splices ...splice) []byte {
	slices.SortFunc(splices, func(a, b splice) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, s := range splices {
		out.Write(content[at:s.from])
		out.WriteString(s.text)
		at = s.to
	}
	out.Write(content[at:])
	return out.Bytes()
}

func notFound(kind, field string) error { return fmt.Errorf("%s %s is not in the file", kind, field) }
