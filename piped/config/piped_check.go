package config

import (
	"strings"

	"github.com/c785c783/piped/piped/config/strict"
)

// field is a field of the spec and whether something is written there.
type field struct {
	path string
	set  bool
}

// relative returns another field's path for a problem of this one:
// without the parent when that is the same.
func (f field) relative(other field) string {
	parent := f.path[:strings.LastIndex(f.path, ".")+1]
	return strings.TrimPrefix(other.path, parent)
}

// required reports a text that is empty.
func required(d *strict.Document, path, text string) {
	if strings.TrimSpace(text) == "" {
		d.Problemf(path, "required")
	}
}

// exclusive reports every field that is set in addition to an earlier one, and returns
// whether any is.
func exclusive(d *strict.Document, fields ...field) bool {
	var first field
	for _, f := range fields {
		switch {
		case f.set && first.set:
			d.Problemf(f.path, "contradicts %s; keep one of them", f.relative(first))
		case f.set:
			first = f
		}
	}
	return first.set
}

// exactlyOne reports fields that are set in addition to an earlier one, or that none is.
func exactlyOne(d *strict.Document, first field, others ...field) {
	if exclusive(d, append([]field{first}, others...)...) {
		return
	}
	paths := make([]string, len(others))
	for i, f := range others {
		paths[i] = first.relative(f)
	}
	d.Problemf(first.path, "required, or %s", strict.Alternatives(paths))
}

// pair reports that one of two fields is set and the other is not.
func pair(d *strict.Document, a, b field) {
	switch {
	case a.set && !b.set:
		d.Problemf(a.path, "needs %s too", a.relative(b))
	case b.set && !a.set:
		d.Problemf(b.path, "needs %s too", b.relative(a))
	}
}

// unfit reports the fields that are set although what was chosen has none.
func unfit(d *strict.Document, chosen string, fields ...field) {
	for _, f := range fields {
		if f.set {
			d.Problemf(f.path, "does not go with %s", chosen)
		}
	}
}

// names finds what must be there and be unique in a list.
type names struct {
	d    *strict.Document
	seen map[string]string // name to the item that has it
}

// add notes the name of the item at a path, and reports one that is missing or
// that another item has too.
func (n *names) add(at, key, name string) {
	if strings.TrimSpace(name) == "" {
		n.d.Problemf(at+"."+key, "required")
		return
	}
	if other, twice := n.seen[name]; twice {
		n.d.Problemf(at+"."+key, "%q is also the %s of %s", name, key, other)
		return
	}
	if n.seen == nil {
		n.seen = map[string]string{}
	}
	n.seen[name] = at
}

// base64Secret decodes a secret that is written in base64.
func base64Secret(d *strict.Document, path string, s strict.Secret) strict.Secret {
	plain, err := s.FromBase64()
	if err != nil {
		d.Problemf(path, "%s", err)
	}
	return plain
}
