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

// mapping is a document or a nested mapping. Values are of type string, int, float64, bool,
// time.Time, mapping, []any or comment, or nil.
type mapping []entry

type entry struct {
	key   string // "" for a comment
	value any
}

// comment is the text of a comment without the leading #.
type comment string

// take removes a key and returns its value, false if the key is missing.
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

// rules select the encrypted values. At most one field is set.
type rules struct {
	unencryptedSuffix, encryptedSuffix   string
	unencryptedKeys, encryptedKeys       *regexp.Regexp
	unencryptedComment, encryptedComment *regexp.Regexp
}

// names reports whether the rule selects values by their keys, and matches key.
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

// matchesComment reports whether the rule selects values by their comments, and matches c.
func (r rules) matchesComment(c comment) bool {
	if r.unencryptedComment != nil {
		return r.unencryptedComment.MatchString(string(c))
	}
	return r.encryptedComment != nil && r.encryptedComment.MatchString(string(c))
}

// covers reports whether a value is encrypted. matched means that the rule matches a key of the
// value's path or a comment before one.
func (r rules) covers(matched bool) bool {
	plain := r.unencryptedSuffix != "" || r.unencryptedKeys != nil || r.unencryptedComment != nil
	return plain && !matched || !plain && (matched || r == rules{})
}

// Limits of a file.
const (
	maxDepth = 200  // nesting of values
	maxPath  = 4096 // bytes of the keys of a value's path
)

var (
	errDeep = fmt.Errorf("its values are nested more than %d deep", maxDepth)
	errPath = fmt.Errorf("the keys that lead to a value have more than %d bytes", maxPath)
)

// place is the position of a value in a document.
type place struct {
	path    []string
	bytes   int // of path
	depth   int
	matched bool // the rule matches a key of the path or a comment before one
}

// walker copies documents without comments. It calls leaf for each scalar value, in the order of
// the document, and replaces the value by the result. Each key and comment is matched once.
type walker struct {
	rules rules
	leaf  func(path []string, value any, encrypted bool) (any, error)
}

func (w walker) mapping(in mapping, at place) (mapping, error) {
	out := mapping{}
	said := false // a comment before the entry matches
	for _, e := range in {
		if c, ok := e.value.(comment); ok {
			said = said || w.rules.matchesComment(c)
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
			said = said || w.rules.matchesComment(c)
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

// mac computes the MAC over the values of a file.
type mac struct {
	hash hash.Hash
	only bool // ignore values that are not encrypted
}

// onlyEncrypted is the initial input, in hex, of a MAC over only the encrypted values. It is the
// SHA-256 of "sops".
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

// plainText returns the text of a value that is the input of the MAC.
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
