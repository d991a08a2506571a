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

// covers reports whether the value at a path is encrypted; comments are those that
// apply to it.
func (r rules) covers(path []string, comments [][]string) bool {
	keys := func(is func(string) bool) bool { return slices.ContainsFunc(path, is) }
	said := func(e *regexp.Regexp) bool {
		return slices.ContainsFunc(comments, func(level []string) bool { return slices.ContainsFunc(level, e.MatchString) })
	}
	switch {
	case r.unencryptedSuffix != "":
		return !keys(func(key string) bool { return strings.HasSuffix(key, r.unencryptedSuffix) })
	case r.encryptedSuffix != "":
		return keys(func(key string) bool { return strings.HasSuffix(key, r.encryptedSuffix) })
	case r.unencryptedKeys != nil:
		return !keys(r.unencryptedKeys.MatchString)
	case r.encryptedKeys != nil:
		return keys(r.encryptedKeys.MatchString)
	case r.unencryptedComment != nil:
		return !said(r.unencryptedComment)
	case r.encryptedComment != nil:
		return said(r.encryptedComment)
	}
	return true
}

// maxDepth bounds how deep values are nested.
const maxDepth = 200

var errDeep = fmt.Errorf("its values are nested more than %d deep", maxDepth)

// walker visits the values of documents in their order. Leaf returns what takes the
// place of one. Comments are left out of the result.
type walker struct {
	rules rules
	leaf  func(path []string, value any, encrypted bool) (any, error)
}

func (w walker) mapping(in mapping, path []string, comments [][]string) (mapping, error) {
	if len(path) > maxDepth {
		return nil, errDeep
	}
	comments = append(slices.Clip(comments), nil)
	own := &comments[len(comments)-1]
	out := mapping{}
	for _, e := range in {
		if c, ok := e.value.(comment); ok {
			*own = append(*own, string(c))
			continue
		}
		value, err := w.value(e.value, append(slices.Clip(path), e.key), comments)
		if err != nil {
			return nil, err
		}
		out = append(out, entry{e.key, value})
		*own = nil
	}
	return out, nil
}

func (w walker) list(in []any, path []string, comments [][]string) ([]any, error) {
	if len(comments) > maxDepth {
		return nil, errDeep
	}
	comments = append(slices.Clip(comments), nil)
	own := &comments[len(comments)-1]
	out := []any{}
	for _, item := range in {
		if c, ok := item.(comment); ok {
			*own = append(*own, string(c))
			continue
		}
		value, err := w.value(item, path, comments)
		if err != nil {
			return nil, err
		}
		if _, ok := value.(comment); !ok {
			out = append(out, value)
		}
		*own = nil
	}
	return out, nil
}

func (w walker) value(in any, path []string, comments [][]string) (any, error) {
	switch in := in.(type) {
	case nil:
		return nil, nil
	case mapping:
		return w.mapping(in, path, comments)
	case []any:
		return w.list(in, path, comments)
	}
	return w.leaf(path, in, w.rules.covers(path, comments))
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
