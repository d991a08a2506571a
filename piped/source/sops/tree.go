package sops

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A document is a mapping. Values are string, int, float64, bool, time.Time, nil,
// mapping, []any and comment.
type mapping []entry

type entry struct {
	key   string // "" for a comment
	value any
}

// comment is the text of a comment behind its sign.
type comment string

// take removes what stands under a key, and returns it.
func (m *mapping) take(key string) (value any, ok bool) {
	at := slices.IndexFunc(*m, func(e entry) bool { return e.key == key })
	if at < 0 {
		return nil, false
	}
	value = (*m)[at].value
	*m = slices.Delete(*m, at, at+1)
	return value, true
}

func (m mapping) text(key string) string {
	for _, e := range m {
		if text, ok := e.value.(string); ok && e.key == key {
			return text
		}
	}
	return ""
}

// rules say which values are encrypted. At most one of them is set.
type rules struct {
	unencryptedSuffix, encryptedSuffix   string
	unencryptedKeys, encryptedKeys       *regexp.Regexp
	unencryptedComment, encryptedComment *regexp.Regexp
}

// names reports whether the rule is about keys and means this one.
func (r rules) names(key string) bool {
	switch {
	case r.unencryptedSuffix != "":
		return strings.HasSuffix(key, r.unencryptedSuffix)
	case r.encryptedSuffix != "":
		return strings.HasSuffix(key, r.encryptedSuffix)
	case r.unencryptedKeys != nil:
		return r.unencryptedKeys.MatchString(key)
	}
	return r.encryptedKeys != nil && r.encryptedKeys.MatchString(key)
}

// says reports whether the rule is about comments and means this one.
func (r rules) says(c comment) bool {
	if r.unencryptedComment != nil {
		return r.unencryptedComment.MatchString(string(c))
	}
	return r.encryptedComment != nil && r.encryptedComment.MatchString(string(c))
}

// covers reports whether a value is encrypted; matched reports that the rule means
// one of the keys or comments that apply to it.
func (r rules) covers(matched bool) bool {
	plain := r.unencryptedSuffix != "" || r.unencryptedKeys != nil || r.unencryptedComment != nil
	return plain && !matched || !plain && (matched || r == rules{})
}

// Bounds of what a file holds.
const (
	maxDepth = 200  // of values in values
	maxPath  = 4096 // bytes of the keys that lead to a value
)

var (
	errDeep = fmt.Errorf("its values are nested more than %d deep", maxDepth)
	errPath = fmt.Errorf("the keys that lead to a value have more than %d bytes", maxPath)
)

// place is where a value is in a document.
type place struct {
	path    []string
	bytes   int // of path
	depth   int
	matched bool // the rule means a key of the path or a comment before one
}

// walker visits the values of documents in their order. Leaf returns what takes the
// place of one. Comments are left out of the result. A rule is applied once to each
// key and comment.
type walker struct {
	rules rules
	leaf  func(path []string, value any, encrypted bool) (any, error)
}

func (w walker) mapping(in mapping, at place) (mapping, error) {
	out := mapping{}
	said := false // by the comments before an entry
	for _, e := range in {
		if c, ok := e.value.(comment); ok {
			said = said || w.rules.says(c)
			continue
		}
		value, err := w.value(e.value, place{
			path: append(slices.Clip(at.path), e.key), bytes: at.bytes + len(e.key) + 1,
			depth: at.depth + 1, matched: at.matched || said || w.rules.names(e.key),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, entry{e.key, value})
		said = false
	}
	return out, nil
}

func (w walker) list(in []any, at place) ([]any, error) {
	out := []any{}
	said := false
	for _, item := range in {
		if c, ok := item.(comment); ok {
			said = said || w.rules.says(c)
			continue
		}
		value, err := w.value(item, place{path: at.path, bytes: at.bytes, depth: at.depth + 1, matched: at.matched || said})
		if err != nil {
			return nil, err
		}
		if _, ok := value.(comment); !ok {
			out = append(out, value)
		}
		said = false
	}
	return out, nil
}

func (w walker) value(in any, at place) (any, error) {
	switch {
	case at.depth > maxDepth:
		return nil, errDeep
	case at.bytes > maxPath:
		return nil, errPath
	}
	switch in := in.(type) {
	case nil:
		return nil, nil
	case mapping:
		return w.mapping(in, at)
	case []any:
		return w.list(in, at)
	}
	return w.leaf(at.path, in, w.rules.covers(at.matched))
}

// mac is the MAC over values.
type mac struct {
	hash hash.Hash
	only bool // encrypted values alone
}

// onlyEncrypted is what a MAC over encrypted values alone begins with: the SHA-256
// of "sops".
const onlyEncrypted = "8a3fd2ad54ce66527b1034f3d147be0b0b975b3bf44f72c6fdadec8176f27d69"

func newMAC(only bool) mac {
	m := mac{sha512.New(), only}
	if only {
		begin, _ := hex.DecodeString(onlyEncrypted)
		m.hash.Write(begin)
	}
	return m
}

func (m mac) add(value any, encrypted bool) error {
	if m.only && !encrypted {
		return nil
	}
	if _, ok := value.(comment); ok {
		return nil
	}
	text, err := plainText(value)
	m.hash.Write([]byte(text))
	return err
}

func (m mac) sum() string { return strings.ToUpper(hex.EncodeToString(m.hash.Sum(nil))) }

// plainText returns a value as it is authenticated.
func plainText(value any) (string, error) {
	switch v := value.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case bool:
		if v {
			return "True", nil
		}
		return "False", nil
	case time.Time:
		text, err := v.MarshalText()
		return string(text), err
	}
	return "", errors.New("it holds a value of a type that SOPS does not have")
}
