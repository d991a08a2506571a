package sops

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// How says what takes the place of encrypted values.
type How int

const (
	// Reveal decrypts them.
	Reveal How = iota
	// Conceal decrypts the file, and puts a name in the place of each text: the same
	// as long as the ciphertext is.
	Conceal
	// Placeholders decrypts nothing; it needs no keys.
	Placeholders
)

// File is what a SOPS file holds.
type File struct {
	Data []byte // in the format of the file, without SOPS's metadata
	// Secrets are the texts that were encrypted, but for those that name an object of
	// Kubernetes, and also as base64 of a Secret stands for them.
	Secrets []string
}

// MaxSize bounds a SOPS file, in bytes. A larger file is not taken for one; an object
// of Kubernetes is smaller.
const MaxSize = 2 << 20

// Is reports whether a file could be one of SOPS.
func Is(data []byte) bool {
	return len(data) <= MaxSize && bytes.Contains(data, []byte("ENC[AES256_GCM,")) && bytes.Contains(data, []byte("sops"))
}

// Open decrypts a file, whose name says its format. Not ok means that it is none of
// SOPS, or one that an operator in the cluster is to decrypt: an object of kind
// SopsSecret. Errors say what to change and show nothing of the content.
func (k *Keys) Open(name string, data []byte, how How) (f File, ok bool, err error) {
	if !Is(data) {
		return File{}, false, nil
	}
	format := formatOf(name, data)
	docs, err := format.read(data)
	if err != nil && (errors.Is(err, errSyntax) || !bytes.Contains(data, []byte("mac"))) {
		return File{}, false, nil
	}
	if err != nil {
		return File{}, true, err
	}
	raw, found := takeMetadata(docs, format)
	if !found || raw.text("mac") == "" || docs[0].text("kind") == "SopsSecret" {
		return File{}, false, nil
	}
	md, err := readMetadata(raw)
	if err != nil {
		return File{}, true, err
	}
	f, err = k.open(docs, md, format, how)
	return f, true, err
}

// takeMetadata removes the metadata from documents, and returns it.
func takeMetadata(docs []mapping, format format) (md mapping, ok bool) {
	if len(docs) == 0 {
		return nil, false
	}
	if format.flat != "" {
		docs[0] = slices.DeleteFunc(docs[0], func(e entry) bool {
			key, is := strings.CutPrefix(e.key, format.flat)
			if is {
				md = append(md, entry{key, e.value})
			}
			return is
		})
		return unflatten(md), md != nil
	}
	for i := range docs {
		value, has := docs[i].take("sops")
		if m, is := value.(mapping); i == 0 && has && is {
			md, ok = m, true
		}
	}
	for i, e := range md {
		if text, is := e.value.(string); is && strings.Contains(e.key, "__list_") { // of INI
			md[i].value = strings.ReplaceAll(text, `\n`, "\n")
		}
	}
	return unflatten(md), ok
}

var errChanged = errors.New("its MAC is not that of its values: it was changed after SOPS wrote it; edit it with sops")

// open opens documents whose metadata was taken out.
func (k *Keys) open(docs []mapping, md metadata, format format, how How) (File, error) {
	var key dataKey
	if how != Placeholders {
		if k == nil {
			return File{}, &NoKeyError{"it is encrypted with SOPS, and the agent has no keys for it: add sops to its configuration"}
		}
		var err error
		if key, err = k.dataKey(md); err != nil {
			return File{}, err
		}
	} else if !slices.ContainsFunc(md.groups, func(g group) bool { return len(g.age)+len(g.pgp) > 0 }) {
		_, err := (&Keys{}).dataKey(md)
		return File{}, err
	}
	o := opening{key: key, how: how, mac: newMAC(md.macOnly)}
	var out []mapping
	for _, doc := range docs {
		o.object = doc.text("apiVersion") != "" && doc.text("kind") != ""
		o.kind = doc.text("kind")
		m, err := walker{rules: md.rules, leaf: o.leaf}.mapping(doc, place{})
		if err != nil {
			return File{}, err
		}
		out = append(out, m)
	}
	if how != Placeholders {
		want, err := key.open(md.mac, md.lastModified)
		if err != nil || want != o.mac.sum() {
			return File{}, errChanged
		}
	}
	data, err := format.write(out)
	return File{Data: data, Secrets: o.secrets}, err
}

// opening replaces the encrypted values of a file.
type opening struct {
	key     dataKey
	how     How
	mac     mac
	object  bool   // the document is an object of Kubernetes
	kind    string // of the object; decrypted once that is read
	secrets []string
}

func (o *opening) leaf(path []string, value any, encrypted bool) (any, error) {
	if !encrypted {
		return value, o.mac.add(value, false)
	}
	text, ok := value.(string)
	if !ok {
		return nil, errFormat
	}
	out := value
	if o.how != Placeholders {
		var err error
		if out, err = o.key.open(text, boundTo(path)); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(path, "."), err)
		}
		if err := o.mac.add(out, true); err != nil {
			return nil, err
		}
	}
	names := o.object && namesObject(path)
	if plain, ok := out.(string); ok && path[0] == "kind" && o.how != Placeholders {
		o.kind = plain
	}
	encoded := o.kind == "Secret" && path[0] == "data"
	switch {
	case o.how == Placeholders:
		return placeholder(path, text, encoded), nil
	case names:
		return out, nil
	case o.how == Conceal:
		return standIn(text, func(ciphertext string) string {
			sum := sha256.Sum256([]byte(ciphertext))
			return inSecret("redacted-"+hex.EncodeToString(sum[:6]), encoded)
		}), nil
	}
	o.keep(out, encoded)
	return out, nil
}

// namesObject reports whether a value says which object it is part of, and so is no
// secret.
func namesObject(path []string) bool {
	switch path[0] {
	case "apiVersion", "kind":
		return true
	case "metadata":
		return len(path) > 1 && path[1] != "annotations"
	}
	return false
}

// inSecret returns a text as it stands in data of a Secret, or as it is.
func inSecret(text string, encoded bool) string {
	if encoded {
		return base64.StdEncoding.EncodeToString([]byte(text))
	}
	return text
}

// placeholder returns a value that takes the place of one that cannot be known.
func placeholder(path []string, text string, encoded bool) any {
	return standIn(text, func(string) string {
		switch strings.Join(path, ".") {
		case "apiVersion":
			return "v1"
		case "kind":
			return "Secret"
		}
		return inSecret("placeholder", encoded)
	})
}

// shortNumber is up to how many digits a number is taken for no secret: a port or a
// number of replicas stands in too many messages.
const shortNumber = 5

// keep notes a value that was encrypted.
func (o *opening) keep(value any, encoded bool) {
	text, ok := value.(string)
	if !ok {
		if _, isBool := value.(bool); isBool {
			return
		}
		if text, _ = plainText(value); len(text) <= shortNumber {
			return
		}
	}
	o.secrets = append(o.secrets, text)
	if plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); encoded && err == nil {
		o.secrets = append(o.secrets, string(plain))
	}
}
